// SPDX-License-Identifier: Apache-2.0
// What happens, as it happens: decisions about pause loops, and events of the machine. The newest is on top.

import { count, element, words } from "./words.js";

/// Rows that are kept.
const ROWS = 100;

function put(list, rows) {
  list.prepend(...rows);
  while (list.childElementCount > ROWS) list.lastElementChild.remove();
}

const when = (seconds) => element("span", { class: "when" }, `${seconds.toFixed(3)} s`);

function deed(decision) {
  if (decision.act === "yield_to") return decision.how === undefined ? "yield" : words(decision.how);
  return { park: "parked", spin: "goes on spinning", bail: "bailed out" }[decision.act] ?? words(decision.act);
}

function decisionRow(decision) {
  const to = decision.target === undefined ? "" : ` → ${decision.target}`;
  const why = [decision.class, decision.reason].filter((part) => part !== undefined).map(words).join(", ");
  const outcome = decision.outcome === undefined
    ? undefined
    : element("span", { class: `tag ${decision.outcome}` }, words(decision.outcome));
  return element(
    "li",
    { class: decision.act },
    when(decision.at_ns / 1e9),
    element("span", { class: "who" }, `vCPU ${decision.vcpu}${to}`),
    element("span", { class: "what" }, deed(decision), why === "" ? undefined : element("span", { class: "why" }, ` ${why}`)),
    outcome,
  );
}

export class DecisionFeed {
  #list;
  #last = 0;

  constructor(list) {
    this.#list = list;
  }

  show({ latest }) {
    const newest = latest.at(-1)?.number ?? 0;
    if (newest < this.#last) {
      // Another machine.
      this.#list.replaceChildren();
      this.#last = 0;
    }
    const fresh = latest.filter((decision) => decision.number > this.#last);
    if (fresh.length === 0) return;
    const missed = fresh[0].number - this.#last - 1;
    const rows = fresh.toReversed().map(decisionRow);
    if (missed > 0) rows.push(element("li", { class: "missed" }, `${count(missed)} before`));
    this.#last = newest;
    put(this.#list, rows);
  }
}

/// What an event says, by its kind.
const SENTENCES = {
  state_changed: (event) => `The machine is ${event.state}: ${event.why}`,
  settings_changed: (event) => `Settings were changed: ${event.what}`,
  guest_panic: (event) => `The guest panicked${event.crash_loaded ? ", and deals with it itself" : ""}`,
  placement_moved: (event) =>
    `vCPU ${event.vcpu} moved${event.from === undefined ? "" : ` from CPU ${event.from}`} to CPU ${event.to} (${words(event.rule)})`,
  pause_pressure: (event) =>
    `${count(event.events_per_s)} pause events/s, ${event.above ? "above" : "below"} ${count(event.threshold_per_s)}`,
  steal: (event) =>
    `${event.permille / 10} % stolen, ${event.above ? "above" : "below"} ${event.threshold_permille / 10} %`,
  gap: (event) => `${count(event.missed)} events are gone`,
};

export class EventFeed {
  #list;
  /// Id of the last event that was shown.
  last = 0;

  constructor(list) {
    this.#list = list;
  }

  show(event) {
    this.last = event.id;
    const sentence = SENTENCES[event.kind]?.(event) ?? words(event.kind);
    const above = event.kind === "guest_panic" || event.above === true;
    const mark = element("span", { class: above ? "tag alarm" : "tag" }, words(event.kind));
    put(this.#list, [element("li", {}, mark, element("span", { class: "what" }, sentence))]);
  }
}
