// SPDX-License-Identifier: Apache-2.0
//! The machine of a guest of a cell, as a configuration file.
//!
//! Invariant: what an experiment runs is what `vmm --config FILE` runs with the same file; a plan whose machines are not
//! all accepted is refused before the first one starts.

use guest::job::Job;

use ::experiment::plan::{ArmSettings, Load, Plan, PlanFault, Problem, Program, Workload};

use super::image::ImageFiles;
use crate::config;

/// The name of a machine: workload, ratio and arm.
pub(super) fn name(plan: &Plan, (workload, load, arm): (usize, usize, usize)) -> String {
    format!("{}-{}-{}", plan.workloads[workload].name, plan.loads[load].ratio, plan.arms[arm].name)
}

/// What the kernel of a Linux guest is told beside its job: nothing but errors on the console, and an end to a panic.
const COMMAND_LINE: &str = "console=ttyS0 quiet panic=1";

/// Its configuration. Without `image` that of a Linux guest names no kernel: it is only looked at.
fn text(
    plan: &Plan,
    workload: &Workload,
    load: &Load,
    settings: &ArmSettings,
    image: Option<&ImageFiles>,
) -> Result<String, String> {
    let guests = load.guests;
    let mut table = toml::Table::try_from(settings).map_err(|error| error.to_string())?;
    let mut set = |key: &str, value: toml::Value| table.insert(key.to_owned(), value);
    set("cpus", i64::from(guests.vcpus).into());
    if guests.nodes > 1 {
        set("numa", i64::from(guests.nodes).into());
    }
    set("memory", format!("{}M", guests.memory_mib).into());
    let (seconds, rest) = (plan.window_ms / 1000, plan.window_ms % 1000);
    match &workload.program {
        Program::Probe(words) => {
            set("probe", format!("{words} seconds={seconds}.{rest:03} report=none wait=line").into());
        }
        Program::Linux(words) => {
            let job = Job::parse(words).and_then(|job| job.lasting(seconds)).map_err(|error| error.to_string())?;
            if let Some(files) = image {
                set("kernel", files.kernel().display().to_string().into());
                set("initrd", files.initrd(job.tool).display().to_string().into());
                set("cmdline", format!("{COMMAND_LINE} agent={job}").into());
            }
        }
    }
    if settings.placement.is_none() {
        set("placement", format!("pin=[{}]", plan.cpus).into());
    }
    toml::to_string(&table).map_err(|error| error.to_string())
}

/// Every machine of a plan by its name, each accepted.
///
/// # Errors
/// The first that is refused, at the line of its arm; at that of its workload if it is refused whatever the arm.
pub(super) fn all(plan: &Plan, image: &ImageFiles) -> Result<Vec<(String, String)>, PlanFault> {
    let mut machines = Vec::new();
    for (at, workload) in plan.workloads.iter().enumerate() {
        for (load_at, load) in plan.loads.iter().enumerate() {
            let bare = text(plan, workload, load, &ArmSettings::default(), None).and_then(accepted);
            bare.map_err(|why| refused("workloads", &workload.name, workload.line, why))?;
            for (arm_at, arm) in plan.arms.iter().enumerate() {
                let of = |image| text(plan, workload, load, &arm.settings, image);
                let machine = of(None).and_then(accepted).and_then(|_| of(Some(image)));
                let machine = machine.map_err(|why| refused("arms", &arm.name, arm.line, why))?;
                machines.push((name(plan, (at, load_at, arm_at)), machine));
            }
        }
    }
    Ok(machines)
}

fn accepted(text: String) -> Result<String, String> {
    config::parse(&text).map_err(|error| error.to_string())?.resolve().map_err(|error| error.to_string())?;
    Ok(text)
}

fn refused(key: &str, name: &str, line: usize, why: String) -> PlanFault {
    PlanFault { line, key: key.to_owned(), problem: Problem::Machine(format!("machine of `{name}`: {why}")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(arm: &str, workload: &str) -> Plan {
        let text = format!(
            "name = \"x\"\nrepetitions = 1\nwindow_ms = 1250\novercommit = [2]\nworkloads = [\"w\"]\narms = [\"a\", \
             \"park\"]\n[guests]\nvcpus = 2\nnodes = 2\ncpus = \"0\"\n[[workload]]\nname = \"w\"\nprobe = \
             \"{workload}\"\n[[arm]]\nname = \"a\"\n{arm}\n"
        );
        Plan::parse(&text, &"0-1".parse().expect("a list")).expect("a plan")
    }

    fn all_of(plan: &Plan) -> Result<Vec<(String, String)>, PlanFault> {
        all(plan, &ImageFiles("/image".into()))
    }

    #[test]
    fn a_linux_machine_boots_the_image_of_its_tool_with_its_job() {
        let text = "name = \"x\"\nrepetitions = 1\nwindow_ms = 3000\novercommit = [2]\nworkloads = [\"dbench\"]\narms = \
                    [\"off\"]\n[guests]\nsystem = \"linux\"\ncount = 1\ncpus = \"0\"\n";
        let plan = |text: &str| Plan::parse(text, &"0-1".parse().expect("a list")).expect("a plan");
        let machines = all_of(&plan(text)).expect("good");
        let machine: toml::Table = machines[0].1.parse().expect("TOML");
        let text_of = |key: &str| machine[key].as_str().expect("a text").to_owned();
        assert_eq!(
            (text_of("kernel"), text_of("initrd")),
            ("/image/vmlinuz".to_owned(), "/image/dbench.cpio".to_owned())
        );
        assert_eq!(text_of("cmdline"), "console=ttyS0 quiet panic=1 agent=dbench,seconds=3");
        assert!(!machine.contains_key("probe") && machine["memory"].as_str() == Some("256M"));
        let own = text.replace("dbench", "w") + "[[workload]]\nname = \"w\"\nlinux = \"dbench client=3\"\n";
        let fault = all_of(&plan(&own)).expect_err("no such setting");
        assert_eq!((fault.line, fault.key.as_str()), (5, "workloads"), "{fault}");
        assert!(fault.to_string().contains("`client=3` is no setting of dbench"), "{fault}");
    }

    #[test]
    fn a_machine_is_what_the_plan_says() {
        let machines =
            all_of(&plan("pause = \"off\"\nplacement = \"spread\"\nhalt_poll = 0", "ticket hold=7")).expect("good");
        let names: Vec<&str> = machines.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["w-2x-a", "w-2x-park"]);
        let config = config::parse(&machines[0].1).expect("a configuration");
        assert_eq!(config.probe.as_deref(), Some("ticket hold=7 seconds=1.250 report=none wait=line"));
        assert_eq!((config.halt_poll, config.numa.len()), (Some(0), 1));
        assert!(machines[0].1.contains("placement = \"spread\"") && machines[1].1.contains("placement = \"pin=[0]\""));
        assert!(machines[1].1.contains("pause_mechanism = \"park\""), "{}", machines[1].1);
    }

    #[test]
    fn a_machine_that_is_refused_is_named_with_its_line() {
        for (arm, workload, line, key, part) in [
            ("pause = \"of\"", "ring", 15, "arms", "of"),
            ("pause_set = [\"bail_after=0\"]", "ring", 15, "arms", "bail_after is 0"),
            ("pv = \"kvmclok\"", "ring", 15, "arms", "kvmclok"),
            ("", "rings", 5, "workloads", "rings"),
            ("", "ring seconds=2 ticket", 5, "workloads", "ticket"),
        ] {
            let fault = all_of(&plan(arm, workload)).expect_err(arm);
            assert_eq!((fault.line, fault.key.as_str()), (line, key), "{fault}");
            assert!(fault.to_string().contains(part), "{fault}");
        }
    }

    #[test]
    fn every_plan_of_the_tree_is_accepted_on_two_host_cpus() {
        let directory = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../resources/plans");
        let mut seen = 0;
        for entry in std::fs::read_dir(directory).expect("there are plans") {
            let path = entry.expect("an entry").path();
            let allowed = "0-1".parse().expect("a list");
            let (plan, _) = Plan::read(&path, &allowed).unwrap_or_else(|error| panic!("{error}"));
            let machines = all_of(&plan).unwrap_or_else(|fault| panic!("{}: {fault}", path.display()));
            assert_eq!(machines.len(), plan.workloads.len() * plan.loads.len() * plan.arms.len());
            assert!(plan.repetitions >= 5, "{}: fewer runs show little", path.display());
            seen += 1;
        }
        assert!(seen >= 4);
    }
}
