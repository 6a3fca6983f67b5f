// SPDX-License-Identifier: Apache-2.0
//! `/vcpus`: look at the vCPUs, give one other host CPUs.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use topology::id::VcpuIndex;

use super::answer::{Always, Changing, Missing, Reading, json, no_vm, tagged};
use super::extract::{Body, Expected, NoQuery, Segment, ask};
use crate::monitor::Change;
use crate::server::context::Shared;
use crate::wire::{AffinityChange, Code, Problem, Vcpu, Vcpus};

type Context = State<Arc<Shared>>;

/// All vCPUs.
#[utoipa::path(
    get, path = "/api/v1/vcpus", tag = "vcpus", operation_id = "listVcpus",
    responses(
        (status = 200, description = "The vCPUs, in the order of the index", body = Vcpus,
         headers(("ETag" = String, description = "The machine's generation"))),
        Missing, Always
    )
)]
pub(super) async fn list(State(shared): Context, _: NoQuery) -> Result<Response, Problem> {
    shared.monitor.vcpus().map(|vcpus| tagged(&vcpus, vcpus.generation)).ok_or_else(no_vm)
}

/// One vCPU.
#[utoipa::path(
    get, path = "/api/v1/vcpus/{index}", tag = "vcpus", operation_id = "getVcpu",
    params(("index" = u32, Path, description = "Its index")),
    responses((status = 200, description = "The vCPU", body = Vcpu), Missing, Always)
)]
pub(super) async fn one(State(shared): Context, Segment(index): Segment, _: NoQuery) -> Result<Response, Problem> {
    answer(&shared, number(&shared, &index)?)
}

/// Give a vCPU's thread other host CPUs.
#[utoipa::path(
    patch, path = "/api/v1/vcpus/{index}", tag = "vcpus", operation_id = "changeVcpu", request_body = AffinityChange,
    params(
        ("index" = u32, Path, description = "Its index"),
        ("If-Match" = Option<String>, Header, pattern = r#"^(\*|[0-9]{1,19}|"[0-9]{1,19}")$"#, description = "Only if the machine has this generation"),
    ),
    responses(
        (status = 200, description = "The vCPU with its new CPUs", body = Vcpu),
        Missing, Changing, Reading, Always
    )
)]
pub(super) async fn change(
    State(shared): Context,
    Segment(index): Segment,
    _: NoQuery,
    expected: Expected,
    Body(change): Body<AffinityChange>,
) -> Result<Response, Problem> {
    let vcpu = number(&shared, &index)?;
    ask(&shared, Change::Affinity { vcpu, cpus: change.affinity }, expected).await?;
    answer(&shared, vcpu)
}

fn answer(shared: &Shared, vcpu: VcpuIndex) -> Result<Response, Problem> {
    let found = shared.monitor.vcpu(vcpu);
    found.map(|vcpu| json(&vcpu)).ok_or_else(|| missing(shared, &vcpu.to_string()))
}

/// The index that a path names: digits, without a sign or a leading zero.
fn number(shared: &Shared, text: &str) -> Result<VcpuIndex, Problem> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    plain.then(|| text.parse().ok()).flatten().map(VcpuIndex).ok_or_else(|| missing(shared, text))
}

fn missing(shared: &Shared, text: &str) -> Problem {
    let Some(vm) = shared.monitor.vm() else { return no_vm() };
    let text: String = text.chars().take(32).flat_map(char::escape_debug).collect();
    Problem::new(Code::NoSuchVcpu, format!("vCPU `{text}` does not exist"))
        .hint(format!("the machine has vCPUs 0 to {}", vm.cpus.saturating_sub(1)))
}
