// SPDX-License-Identifier: Apache-2.0
//! Everything that is counted, as text for Prometheus (docs/metrics.md).
//!
//! Pure: what was [`Seen`] in, text out. Names carry their unit, counters only grow, and the number of series is bounded: by the
//! number of vCPUs up to [`LABELLED`], by the names that the monitor and the kernel have for kinds and reasons otherwise.

mod vcpus;

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, prometheus_text, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};

use crate::wire::{ApiStats, Stats, Vcpus, Vm, VmState};

/// vCPUs that have series of their own; the others are summed up as `others`.
pub(crate) const LABELLED: usize = 256;

/// How the text is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// The older text of Prometheus, for whoever asks for `text/plain` alone.
    Plain,
}

impl Format {
    /// The one that a header `Accept` asks for.
    pub(crate) fn of(accept: Option<&str>) -> Self {
        let accept = accept.unwrap_or_default().to_ascii_lowercase();
        let names = |name: &str| accept.split(',').any(|one| one.split(';').next().unwrap_or_default().trim() == name);
        if names("text/plain") && !names("application/openmetrics-text") { Self::Plain } else { Self::OpenMetrics }
    }

    pub(crate) const fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Plain => prometheus_text::CONTENT_TYPE,
        }
    }
}

/// What was seen of a machine at one moment; only what the API itself counted is there before one is created.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) vm: Option<Vm>,
    pub(crate) vcpus: Option<Vcpus>,
    pub(crate) stats: Option<Stats>,
    pub(crate) api: ApiStats,
}

/// Writes it.
pub(crate) fn write(seen: Seen, format: Format) -> String {
    let mut registry = Registry::with_prefix("vmm");
    registry.register_collector(Box::new(seen));
    let mut page = String::new();
    let written = match format {
        Format::OpenMetrics => text::encode(&mut page, &registry),
        Format::Plain => prometheus_text::encode(&mut page, &registry),
    };
    // Writing to a String cannot fail.
    written.expect("invariant: text is written to memory");
    page
}

impl Collector for Seen {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut page = Page { encoder };
        if let Some(vm) = &self.vm {
            machine(&mut page, vm)?;
        }
        if let Some(vcpus) = &self.vcpus {
            vcpus::write(&mut page, &vcpus.vcpus)?;
        }
        if let Some(stats) = &self.stats {
            sums(&mut page, stats)?;
        }
        api(&mut page, &self.api)
    }
}

/// Where families are written to.
struct Page<'a> {
    encoder: DescriptorEncoder<'a>,
}

/// One series: its labels and its value.
type Series<'a, V, const N: usize> = ([(&'static str, &'a str); N], V);

impl Page<'_> {
    fn counts<'a, const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        series: impl IntoIterator<Item = Series<'a, u64, N>>,
    ) -> fmt::Result {
        let mut family = self.encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        series
            .into_iter()
            .try_for_each(|(labels, value)| ConstCounter::new(value).encode(family.encode_family(&labels)?))
    }

    /// Counts nanoseconds and tells seconds.
    fn seconds<'a, const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        series: impl IntoIterator<Item = Series<'a, u64, N>>,
    ) -> fmt::Result {
        let mut family = self.encoder.encode_descriptor(name, help, Some(&Unit::Seconds), MetricType::Counter)?;
        series
            .into_iter()
            .try_for_each(|(labels, ns)| ConstCounter::new(seconds(ns)).encode(family.encode_family(&labels)?))
    }

    fn bytes(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        let family = self.encoder.encode_descriptor(name, help, Some(&Unit::Bytes), MetricType::Gauge)?;
        ConstGauge::new(signed(value)).encode(family)
    }

    fn gauges<'a, const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        series: impl IntoIterator<Item = Series<'a, u64, N>>,
    ) -> fmt::Result {
        let mut family = self.encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        series
            .into_iter()
            .try_for_each(|(labels, value)| ConstGauge::new(signed(value)).encode(family.encode_family(&labels)?))
    }

    fn count(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        let family = self.encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        ConstCounter::new(value).encode(family)
    }

    fn gauge(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        let family = self.encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        ConstGauge::new(signed(value)).encode(family)
    }

    /// Nanoseconds as a gauge of seconds.
    fn time(&mut self, name: &str, help: &str, ns: u64) -> fmt::Result {
        let family = self.encoder.encode_descriptor(name, help, Some(&Unit::Seconds), MetricType::Gauge)?;
        ConstGauge::new(seconds(ns)).encode(family)
    }
}

fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

#[expect(clippy::cast_precision_loss, reason = "metrics are doubles; a day is told to a hundredth of a nanosecond")]
fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

fn machine(page: &mut Page<'_>, vm: &Vm) -> fmt::Result {
    let states = VmState::ALL.map(|state| ([("state", state.name())], u64::from(vm.state == state)));
    page.gauges("state", "1 for the state that the machine is in", states)?;
    page.count("changes", "Changes of state and settings", vm.generation.0)?;
    page.time("uptime", "Since the machine was started", vm.uptime_ns.unwrap_or(0))?;
    page.gauge("vcpus", "vCPUs", u64::from(vm.cpus))?;
    page.bytes("memory", "Guest memory", vm.memory_bytes)
}

fn sums(page: &mut Page<'_>, stats: &Stats) -> fmt::Result {
    let placement = &stats.placement;
    let moves = placement.moves.iter().map(|(rule, moves)| ([("rule", rule.as_str())], *moves));
    page.counts("placement_moves", "vCPUs moved by placement", moves)?;
    page.count("placement_looks", "Looks of placement at the loads", placement.looks)?;
    page.count("placement_host_changes", "Changes of the host that placement took note of", placement.host_changes)?;
    page.seconds(
        "placement_spent",
        "Time that looking and deciding took",
        [([], placement.spent_ns)] as [Series<'_, _, 0>; 1],
    )?;
    let pairs =
        [("tried", placement.pairs.tried), ("helped", placement.pairs.helped), ("undone", placement.pairs.undone)];
    let pairs = pairs.map(|(outcome, count)| ([("outcome", outcome)], count));
    page.counts("placement_pairs", "Pairs of vCPUs that were brought together", pairs)?;
    page.count("placement_migrations", "Times a guest node's memory followed its vCPUs", placement.migrations)?;
    page.count("placement_refused", "Changes of affinity that the kernel refused", placement.refused)?;
    let kvm = stats.kvm.iter().map(|(counter, value)| ([("counter", counter.as_str())], *value));
    page.gauges("kvm_stat", "KVM's own counters of the machine, under the kernel's names", kvm)?;
    let devices = &stats.devices;
    page.count("console_dropped_bytes", "Bytes of the guest's console that were lost", devices.dropped_bytes)?;
    page.count("interrupts_failed", "Interrupts that could not be raised", devices.interrupts_failed)?;
    page.count("unclaimed_accesses", "Accesses that no device answered", devices.unclaimed_accesses)?;
    let monitor = &stats.monitor;
    page.seconds(
        "process_cpu",
        "CPU time of the process, guest included",
        [([], monitor.cpu_ns)] as [Series<'_, _, 0>; 1],
    )?;
    page.bytes("process_resident_memory", "Resident memory of the process, guest included", monitor.rss_bytes)?;
    page.gauge("process_threads", "Threads of the process", u64::from(monitor.threads))?;
    page.gauge("process_open_files", "Open file descriptors of the process", u64::from(monitor.open_files))
}

fn api(page: &mut Page<'_>, api: &ApiStats) -> fmt::Result {
    page.count("api_requests", "Requests answered by this API", api.requests)?;
    page.count("api_requests_refused", "Of these, answered with a status of 400 and above", api.refused)?;
    page.gauge("api_connections", "Connections that are open", u64::from(api.connections))?;
    page.count("api_connections_refused", "Connections that were turned away", api.connections_refused)?;
    page.gauge("api_streams", "Streams that are open", u64::from(api.streams))
}
