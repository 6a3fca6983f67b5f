// SPDX-License-Identifier: Apache-2.0
//! A run as a timeline that Perfetto and Chrome's trace viewer read: who ran where, who spun for whom, what was decided.
//!
//! The JSON array format of the Trace Event Format: complete slices (`X`) on a row for each CPU and for each task that
//! spins, instants (`i`) for decisions. Invariant: whatever is open at the end is closed at the end.

use std::fmt::Write as _;

use crate::engine::{Trace, TraceEvent};

/// The process number of the rows of CPUs, and that of the rows of tasks.
const ROWS: (u32, u32) = (1, 2);

struct Writer<'a> {
    text: String,
    names: &'a [String],
}

impl Writer<'_> {
    fn name(&self, task: usize) -> &str {
        self.names.get(task).map_or("?", String::as_str)
    }

    fn row(&mut self, process: u32, row: usize, name: &str) {
        let _ = writeln!(
            self.text,
            r#"{{"ph":"M","name":"thread_name","pid":{process},"tid":{row},"args":{{"name":"{name}"}}}},"#
        );
    }

    fn slice(&mut self, process: u32, row: usize, name: &str, from: u64, to: u64) {
        let (ts, length) = (micros(from), micros(to - from));
        let _ = writeln!(
            self.text,
            r#"{{"ph":"X","pid":{process},"tid":{row},"name":"{name}","ts":{ts},"dur":{length}}},"#
        );
    }

    fn instant(&mut self, row: usize, name: &str, at: u64) {
        let _ = writeln!(
            self.text,
            r#"{{"ph":"i","s":"t","pid":{},"tid":{row},"name":"{name}","ts":{}}},"#,
            ROWS.0,
            micros(at)
        );
    }
}

/// Microseconds with three decimals, as the format wants them.
fn micros(ns: u64) -> String {
    format!("{}.{:03}", ns / 1000, ns % 1000)
}

/// The timeline of a trace that ended at `end_ns`. `names` are those of the tasks.
#[must_use]
pub fn chrome(trace: &Trace, names: &[String], end_ns: u64) -> String {
    // Names come from scenario files: quotes and backslashes would end the JSON.
    let plain = |name: &String| name.chars().filter(|c| !c.is_control() && *c != '"' && *c != '\\').collect();
    let names: Vec<String> = names.iter().map(plain).collect();
    let mut out = Writer { text: String::from("[\n"), names: &names };
    let mut running: Vec<Option<(usize, u64)>> = Vec::new();
    let mut spinning: Vec<Option<(Option<usize>, u64)>> = vec![None; names.len()];
    for &(at, event) in &trace.events {
        match event {
            TraceEvent::Runs { task, cpu } => {
                if running.len() <= cpu {
                    running.resize(cpu + 1, None);
                }
                running[cpu] = Some((task, at));
            }
            TraceEvent::Stops { cpu, why, .. } => {
                if let Some((task, from)) = running.get_mut(cpu).and_then(Option::take) {
                    let name = out.name(task).to_owned();
                    out.slice(ROWS.0, cpu, &name, from, at);
                    out.instant(cpu, why, at);
                }
            }
            TraceEvent::Spins { task, owner, .. } => spinning[task] = Some((owner, at)),
            TraceEvent::Gets { task, .. } => close_spin(&mut out, &mut spinning, task, at),
            TraceEvent::Decides { cpu, what, target, .. } => {
                let to = target.map_or(String::new(), |target| format!(" {}", out.name(target)));
                out.instant(cpu, &format!("{what}{to}"), at);
            }
        }
    }
    for (cpu, open) in running.iter().enumerate() {
        if let Some((task, from)) = *open {
            let name = out.name(task).to_owned();
            out.slice(ROWS.0, cpu, &name, from, end_ns.max(from));
        }
        out.row(ROWS.0, cpu, &format!("CPU {cpu}"));
    }
    for (task, name) in names.iter().enumerate() {
        close_spin(&mut out, &mut spinning, task, end_ns);
        out.row(ROWS.1, task, name);
    }
    out.text.truncate(out.text.trim_end_matches([',', '\n']).len());
    out.text.push_str("\n]\n");
    out.text
}

/// The trace as lines for reading: time in ns, CPU, task, what.
#[must_use]
pub fn text(trace: &Trace, names: &[String]) -> String {
    let name = |task: usize| names.get(task).map_or("?", String::as_str);
    let mut lines = String::new();
    for &(at, event) in &trace.events {
        let (cpu, task, what) = match event {
            TraceEvent::Runs { task, cpu } => (cpu, task, "runs".to_owned()),
            TraceEvent::Stops { task, cpu, why } => (cpu, task, why.to_owned()),
            TraceEvent::Spins { task, cpu, owner } => {
                (cpu, task, format!("waits for {}", owner.map_or("somebody", name)))
            }
            TraceEvent::Gets { task, cpu } => (cpu, task, "has it".to_owned()),
            TraceEvent::Decides { task, cpu, what, target } => {
                (cpu, task, format!("decides: {what} {}", target.map_or("", name)).trim_end().to_owned())
            }
        };
        let _ = writeln!(lines, "{at:>12} CPU {cpu:<3} {:<8} {what}", name(task));
    }
    lines
}

fn close_spin(out: &mut Writer<'_>, open: &mut [Option<(Option<usize>, u64)>], task: usize, at: u64) {
    if let Some((owner, from)) = open[task].take() {
        let whom = owner.map_or("somebody".to_owned(), |owner| out.name(owner).to_owned());
        out.slice(ROWS.1, task, &format!("spins for {whom}"), from, at.max(from));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Scenario;

    const RING: &str = r#"title = "t"
duration = "12ms"
host = { cores = 1 }
arm = [{ name = "yield", source = "port", action = "yield" }]
[[vm]]
name = "a"
vcpus = 2
locks = { l = "ring" }
steps = [{ lock = "l", hold = "=2ms" }]
"#;

    #[test]
    fn a_timeline_shows_who_ran_who_span_for_whom_and_what_was_decided() {
        let scenario = Scenario::parse(RING).unwrap();
        let host = scenario.host(None).unwrap();
        let mut world = scenario.world(&host, &scenario.arms[0], 1, Trace::new(100)).unwrap();
        world.run_until(scenario.duration_ns).unwrap();
        let text = chrome(world.trace(), &world.task_names(), scenario.duration_ns);
        for part in ["\"name\":\"a/0\"", "spins for a/0", "yield a/", "\"name\":\"CPU 0\"", "\"ph\":\"X\""] {
            assert!(text.contains(part), "{part} in {text}");
        }
        assert!(text.starts_with("[\n{") && text.ends_with("}\n]\n"), "{text}");
    }
}
