// SPDX-License-Identifier: Apache-2.0
//! Where the control API is offered: what `--api-sock`, `--api-listen`, `--api-token-file` and `--api-only` come to.
//!
//! Pure: no file is opened and no socket made. Invariant: without a token there is no TCP, and TCP is of this machine only,
//! for the token crosses it as plain text.

use std::net::SocketAddr;
use std::path::PathBuf;

use api::wire::ThresholdsChange;

use super::{ConfigError, MachineConfig};

/// Where the API is offered; at one endpoint at least.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiPlan {
    /// Path of the Unix socket.
    pub sock: Option<PathBuf>,
    /// TCP, with the file that holds its token.
    pub tcp: Option<(SocketAddr, PathBuf)>,
    /// The machine is made through the API.
    pub only: bool,
    /// From which numbers on events are told, where that was said.
    pub thresholds: ThresholdsChange,
}

impl MachineConfig {
    /// Where the API is offered; `None` where it is not.
    ///
    /// # Errors
    /// An address without a token or the other way round, an address of another machine, `--api-only` or thresholds without
    /// an endpoint, `--api-only` beside a machine.
    pub fn api_plan(&self) -> Result<Option<ApiPlan>, ConfigError> {
        let tcp = match (self.api_listen, &self.api_token_file) {
            (None, None) => None,
            (Some(address), Some(_)) if !address.ip().is_loopback() => {
                return Err(ConfigError::ApiNotLocal { address });
            }
            (Some(address), Some(file)) => Some((address, file.clone())),
            (Some(address), None) => return Err(ConfigError::ApiWithoutToken { address }),
            (None, Some(path)) => return Err(ConfigError::ApiTokenWithoutTcp { path: path.clone() }),
        };
        let only = self.api_only.unwrap_or(false);
        if self.api_sock.is_none() && tcp.is_none() {
            return match (only, self.api_thresholds) {
                (true, _) => Err(ConfigError::ApiOnlyNowhere),
                (false, Some(thresholds)) => Err(ConfigError::ApiThresholdsNowhere { thresholds }),
                (false, None) => Ok(None),
            };
        }
        if only && self.without_api().effective() != Self::default().effective() {
            return Err(ConfigError::ApiOnlyWithMachine);
        }
        let thresholds = self.api_thresholds.map(|thresholds| thresholds.change()).unwrap_or_default();
        Ok(Some(ApiPlan { sock: self.api_sock.clone(), tcp, only, thresholds }))
    }

    /// The machine alone, which is what the API knows of a configuration.
    #[must_use]
    pub fn without_api(&self) -> Self {
        Self {
            api_sock: None,
            api_listen: None,
            api_token_file: None,
            api_only: None,
            api_thresholds: None,
            ..self.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::CpusConfig;

    fn config() -> MachineConfig {
        MachineConfig { api_sock: Some("api.sock".into()), ..MachineConfig::default() }
    }

    #[test]
    fn nothing_is_offered_that_was_not_asked_for() {
        assert_eq!(MachineConfig::default().api_plan().unwrap(), None);
        let plan = config().api_plan().unwrap().unwrap();
        let thresholds = ThresholdsChange::default();
        assert_eq!(plan, ApiPlan { sock: Some("api.sock".into()), tcp: None, only: false, thresholds });
    }

    #[test]
    fn thresholds_need_somebody_who_is_told() {
        let thresholds = Some("steal-permille=5".parse().unwrap());
        let told = MachineConfig { api_thresholds: thresholds, ..config() };
        assert_eq!(told.api_plan().unwrap().unwrap().thresholds.steal_permille, Some(5));
        let nobody = MachineConfig { api_sock: None, ..told };
        assert!(matches!(nobody.api_plan(), Err(ConfigError::ApiThresholdsNowhere { .. })));
    }

    #[test]
    fn tcp_needs_a_token_and_stays_on_this_machine() {
        let address: SocketAddr = "127.0.0.1:8080".parse().unwrap();
        let bare = MachineConfig { api_listen: Some(address), ..MachineConfig::default() };
        assert!(matches!(bare.api_plan(), Err(ConfigError::ApiWithoutToken { .. })));
        let token = MachineConfig { api_token_file: Some("token".into()), ..bare };
        assert_eq!(token.api_plan().unwrap().unwrap().tcp, Some((address, "token".into())));
        let abroad = MachineConfig { api_listen: Some("0.0.0.0:80".parse().unwrap()), ..token.clone() };
        assert!(matches!(abroad.api_plan(), Err(ConfigError::ApiNotLocal { .. })));
        let alone = MachineConfig { api_listen: None, ..token };
        assert!(matches!(alone.api_plan(), Err(ConfigError::ApiTokenWithoutTcp { .. })));
    }

    #[test]
    fn a_machine_made_through_the_api_is_not_described_beside_it() {
        let only = MachineConfig { api_only: Some(true), ..config() };
        assert!(only.clone().effective().api_plan().unwrap().unwrap().only);
        let both = MachineConfig { cpus: Some(CpusConfig::flat(2)), ..only.clone() };
        assert!(matches!(both.api_plan(), Err(ConfigError::ApiOnlyWithMachine)));
        let nowhere = MachineConfig { api_sock: None, ..only };
        assert!(matches!(nowhere.api_plan(), Err(ConfigError::ApiOnlyNowhere)));
    }
}
