// SPDX-License-Identifier: Apache-2.0
// The last minute: counters as they were seen, made into what happened between two looks.
//
// Knows no page. Counters only grow; where one does not, it is another machine, and the minute begins anew.

/// Slices that are kept: one a second.
export const KEPT = 60;
/// Terms of the ledger, in the order in which they are stacked.
export const TERMS = ["guest", "user", "kernel", "polling", "halted", "waiting"];

function counters(vcpu) {
  const pause = vcpu.pause;
  const bailed = Object.values(pause.bailed).reduce((sum, times) => sum + times, 0);
  return {
    ...Object.fromEntries(TERMS.map((term) => [term, vcpu.ledger_ns[term]])),
    events: pause.events,
    yields: pause.yields.attempted,
    boosted: pause.yields.boosted,
    spins: pause.spins,
    donated: pause.donated_ns,
    received: pause.received_ns,
    bailed,
  };
}

/// What happened to one vCPU between two looks: its time by term as a share of 1, and its events a second.
function between(before, now, ns) {
  const grown = Object.fromEntries(Object.keys(now).map((name) => [name, now[name] - before[name]]));
  const seconds = ns / 1e9;
  const told = TERMS.reduce((sum, term) => sum + grown[term], 0);
  // A vCPU's terms are read a little before or behind the clock.
  const whole = Math.max(ns, told);
  const shares = Object.fromEntries(TERMS.map((term) => [term, grown[term] / whole]));
  const rates = ["events", "yields", "boosted", "spins", "bailed"];
  return {
    shares,
    ...Object.fromEntries(rates.map((name) => [name, grown[name] / seconds])),
    balance: (grown.received - grown.donated) / ns,
  };
}

export class History {
  #last;
  /// One entry a look, oldest first: an array with what happened to each vCPU.
  slices = [];

  /// Takes what `/vcpus` says.
  look({ at_ns, vcpus }) {
    const now = { at_ns, vcpus: vcpus.map(counters) };
    const last = this.#last;
    this.#last = now;
    if (last === undefined) return;
    const backwards = now.vcpus.length !== last.vcpus.length
      || now.at_ns < last.at_ns
      || now.vcpus.some((vcpu, index) => vcpu.events < last.vcpus[index].events);
    if (backwards) {
      this.slices = [];
      return;
    }
    // A machine that stands still has no time.
    const ns = now.at_ns - last.at_ns;
    if (ns === 0) return;
    this.slices.push(now.vcpus.map((vcpu, index) => between(last.vcpus[index], vcpu, ns)));
    if (this.slices.length > KEPT) this.slices.shift();
  }

  /// The last minute of one vCPU, oldest first.
  of(index) {
    return this.slices.map((slice) => slice[index]);
  }

  /// A number of each slice, over all vCPUs.
  over(sum) {
    return this.slices.map((slice) => slice.reduce((total, vcpu) => total + sum(vcpu), 0));
  }
}

/// What a slice says of one vCPU, in words.
export function inWords(slice) {
  const parts = TERMS.filter((term) => slice.shares[term] >= 0.005);
  return parts.map((term) => `${term} ${Math.round(slice.shares[term] * 100)} %`).join(", ") || "no time";
}
