// SPDX-License-Identifier: Apache-2.0
//! `vmm top`: where the vCPUs of a machine spend their time, now, in a terminal.
//!
//! Two looks become rows ([`sample`]), rows become lines ([`view`]), keys change what is shown ([`keys`], [`options`]); the
//! screen is given back on every way out ([`screen`]). Invariant: the machine is asked three small questions a look, and nothing
//! here is waited for without an end.

mod keys;
mod options;
mod sample;
mod screen;
mod view;

use std::time::{Duration, Instant};

use api::client::{Client, ClientError};
use api::wire::{Pause, Vcpus, Vm};

use crate::client::{CallError, endpoint, print};
use crate::config::client::TopArgs;
use options::Options;
use sample::Sample;
use screen::{Screen, Woken};

/// How long a machine may take to answer; the screen stands still meanwhile.
const PATIENCE: Duration = Duration::from_secs(3);
/// Lines and columns of what is printed without a terminal.
const PAPER: (usize, usize) = (usize::MAX, 120);

/// Shows the machine that `args` name until the user has seen enough.
///
/// # Errors
/// [`CallError`]: no such machine, or no terminal.
pub fn run(args: &TopArgs) -> Result<(), CallError> {
    let client = Client::new(endpoint(&args.endpoint)?).patient(PATIENCE);
    let options = Options::new(args.sort, &args.filter);
    match args.batch {
        Some(looks) => batch(&client, args.interval, &options, looks),
        None => interactive(&client, args.interval, options),
    }
}

/// What one look shows.
struct Look {
    vm: Vm,
    pause: Pause,
    vcpus: Vcpus,
}

impl Look {
    fn take(client: &Client) -> Result<Self, ClientError> {
        Ok(Self {
            vm: client.get("/api/v1/vm")?,
            pause: client.get("/api/v1/pause")?,
            vcpus: client.get("/api/v1/vcpus")?,
        })
    }

    /// What happened between `earlier` and this one.
    fn since(&self, earlier: Option<&Self>) -> Sample {
        Sample::between(&self.vm, &self.pause, earlier.map(|earlier| &earlier.vcpus), &self.vcpus)
    }
}

fn batch(client: &Client, interval: Duration, options: &Options, looks: u32) -> Result<(), CallError> {
    let mut earlier = Look::take(client)?;
    for number in 0..looks {
        std::thread::sleep(interval);
        let look = Look::take(client)?;
        let mut lines = view::page(&look.since(Some(&earlier)), options, PAPER, false);
        // Nobody types here: of the last line the signs stay.
        lines.pop();
        lines.push(view::SIGNS.to_owned());
        let apart = if number == 0 { "" } else { "\n" };
        print(format!("{apart}{}\n", lines.join("\n")).as_bytes())?;
        earlier = look;
    }
    Ok(())
}

fn interactive(client: &Client, interval: Duration, mut options: Options) -> Result<(), CallError> {
    let first = Look::take(client)?;
    let mut screen = Screen::enter()?;
    let mut shown = first.since(None);
    let mut earlier = first;
    let mut next = Instant::now() + interval.min(Duration::from_millis(300));
    loop {
        let size = screen.size();
        screen.show(&view::page(&shown, &options, size, screen.coloured()))?;
        match screen.wait(next.saturating_duration_since(Instant::now()))? {
            Woken::Ended => return Ok(()),
            Woken::Keys(keys) => {
                for key in keys {
                    if options.take(key, view::rows_of(size)) {
                        return Ok(());
                    }
                }
            }
            Woken::Due => {
                next = Instant::now() + interval;
                if !options.frozen {
                    match Look::take(client) {
                        Ok(look) => {
                            shown = look.since(Some(&earlier));
                            earlier = look;
                            options.trouble = None;
                        }
                        Err(error) => options.trouble = Some(error.to_string()),
                    }
                }
            }
        }
    }
}
