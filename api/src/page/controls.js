// SPDX-License-Identifier: Apache-2.0
// Changes: pause handling, placement, and the machine's buttons. Each is said in words and confirmed before it is asked for.
//
// A form follows the machine until somebody touches it; what is sent is what differs from the machine, with the generation
// that was looked at, so that nobody's change is undone unseen.

import { Refused, change } from "./server.js";
import { byId, element, say, words } from "./words.js";

const MODES = {
  off: "No policy; PAUSE exits are off",
  kernel: "The kernel alone; loops are counted",
  observe: "Decide and count, do nothing",
  act: "Decide and do it",
};
const PLACEMENTS = {
  auto: "By the host’s shape, and goes on deciding",
  spread: "Once, far apart",
  pack: "Once, close together",
  none: "The kernel decides",
  pin: "On the CPUs named",
};

/// Buttons of the machine: what each asks for, and what it means.
const BUTTONS = {
  pause: ["PUT", "/api/v1/vm/state", { state: "paused" }, "Pause the machine?", "Its vCPUs stand still until it is resumed."],
  resume: ["PUT", "/api/v1/vm/state", { state: "running" }, "Let the machine run?", "Its vCPUs go on where they are."],
  power: ["POST", "/api/v1/vm/power-button", undefined, "Press the power button?", "The guest decides what it does about it."],
  nmi: ["POST", "/api/v1/vm/nmi", undefined, "Send an NMI?", "Every vCPU gets a non-maskable interrupt; many guests panic on it."],
  reset: ["POST", "/api/v1/vm/reset", undefined, "Reset the guest?", "What it has not written down is lost; a machine of the same configuration begins anew."],
  stop: ["PUT", "/api/v1/vm/state", { state: "stopped" }, "Stop the machine?", "It ends at once, whatever the guest does."],
};
const POSSIBLE = {
  created: ["resume", "stop"],
  running: ["pause", "power", "nmi", "reset", "stop"],
  paused: ["resume", "stop"],
  stopped: [],
};

/// Asks whether something is to be done.
function confirmed(title, lines, verb) {
  const dialog = byId("confirm");
  say(byId("confirm-title"), title);
  byId("confirm-lines").replaceChildren(...lines.map((line) => element("li", {}, line)));
  say(byId("confirm-yes"), verb);
  dialog.returnValue = "";
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true });
  });
}

/// Says what came of a change, where screen readers hear it.
function tell(text, bad) {
  const note = byId("outcome");
  note.className = bad ? "note bad" : "note";
  note.replaceChildren(text);
  note.hidden = false;
}

function tellRefusal(error) {
  const { message, cause, hint } = error instanceof Refused ? error.problem : {};
  tell([message ?? String(error), cause, hint].filter((part) => part !== undefined).join(" · "), true);
}

function radios(root, name, choices) {
  root.append(...Object.entries(choices).map(([value, meaning]) =>
    element(
      "label",
      { class: "choice" },
      element("input", { type: "radio", name, value }),
      element("span", { class: "choice-name" }, value),
      element("span", { class: "choice-meaning" }, meaning),
    )));
}

/// What both forms do alike: follow the machine, collect what was changed, confirm, ask.
class Settings {
  #form;
  #path;
  #title;
  #dirty = false;
  #changed;
  /// What the machine says.
  seen;

  constructor(form, path, title, changed) {
    this.#form = form;
    this.#path = path;
    this.#title = title;
    this.#changed = changed;
    form.addEventListener("input", () => this.#touched(true));
    form.addEventListener("reset", (event) => {
      event.preventDefault();
      this.#touched(false);
      this.fill(this.seen);
    });
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#submit();
    });
    this.#touched(false);
  }

  get form() {
    return this.#form;
  }

  show(seen) {
    if (this.#dirty) return;
    this.seen = seen;
    this.fill(seen);
  }

  choose(name, value) {
    for (const radio of this.#form.elements[name]) radio.checked = radio.value === value;
  }

  #touched(dirty) {
    this.#dirty = dirty;
    for (const button of this.#form.querySelectorAll("button")) button.disabled = !dirty;
  }

  async #submit() {
    const { body, lines } = this.difference();
    if (lines.length === 0) {
      tell("Nothing differs from what is.", false);
      this.#touched(false);
      return;
    }
    if (!(await confirmed(this.#title, lines, "Change"))) return;
    try {
      const seen = await change("PATCH", this.#path, body, this.seen.generation);
      this.#touched(false);
      this.show(seen);
      tell(`Done: ${lines.join("; ")}`, false);
    } catch (error) {
      tellRefusal(error);
      // Somebody else was faster: the form shows the machine as it is now.
      if (error.status === 412) this.#touched(false);
    }
    this.#changed();
  }
}

class PauseSettings extends Settings {
  fill(pause) {
    this.choose("pause-mode", pause.mode);
    const select = this.form.elements.mechanism;
    const names = new Set(["auto", "none", ...pause.mechanisms.map((grant) => grant.name), pause.mechanism]);
    if (select.options.length !== names.size) {
      select.replaceChildren(...[...names].map((name) => element("option", { value: name }, name)));
    }
    select.value = pause.mechanism;
    const root = byId("parameters");
    for (const [name, parameter] of Object.entries(pause.parameters)) {
      const input = this.form.elements[name] ?? this.#parameter(root, name, parameter);
      input.value = String(parameter.granted);
    }
    byId("grants").replaceChildren(...grants(pause));
  }

  #parameter(root, name, { least, most, at_run_time }) {
    const input = element("input", { type: "number", name, min: least, max: most, step: 1, required: true, disabled: !at_run_time });
    root.append(element("label", {}, element("span", {}, words(name)), input));
    return input;
  }

  difference() {
    const [body, lines] = [{}, []];
    const mode = this.form.elements["pause-mode"].value;
    if (mode !== this.seen.mode) {
      body.mode = mode;
      lines.push(`mode ${this.seen.mode} → ${mode}`);
    }
    const mechanism = this.form.elements.mechanism.value;
    if (mechanism !== this.seen.mechanism) {
      body.mechanism = mechanism;
      lines.push(`mechanism ${this.seen.mechanism} → ${mechanism}`);
    }
    for (const [name, parameter] of Object.entries(this.seen.parameters)) {
      const value = Number(this.form.elements[name].value);
      if (value === parameter.granted) continue;
      body.parameters = { ...body.parameters, [name]: value };
      lines.push(`${words(name)} ${parameter.granted} → ${value}`);
    }
    return { body, lines };
  }
}

function grants(pause) {
  const kinds = [["source", pause.sources], ["mechanism", pause.mechanisms], ["view", pause.views]];
  return kinds.flatMap(([kind, list]) => list.map((grant) =>
    element(
      "tr",
      {},
      element("th", { scope: "row" }, `${kind} ${grant.name}`),
      element("td", {}, grant.asked ? "asked" : "–"),
      element("td", {}, element("span", { class: grant.granted ? "tag boosted" : "tag" }, grant.granted ? "granted" : "no")),
      element("td", {}, [grant.why, grant.remedy].filter((part) => part !== undefined).join("; ")),
    )));
}

class PlacementSettings extends Settings {
  fill(placement) {
    this.choose("placement-mode", placement.mode);
    this.form.elements.pin.value = placement.pin ?? "";
    const root = byId("rules");
    for (const [name, on] of Object.entries(placement.rules)) {
      const box = this.form.elements[`rule-${name}`] ?? this.#rule(root, name);
      box.checked = on;
    }
    byId("notes").replaceChildren(...placement.notes.map((note) => element("li", {}, note)));
  }

  #rule(root, name) {
    const box = element("input", { type: "checkbox", name: `rule-${name}` });
    root.append(element("label", { class: "switch" }, box, words(name)));
    return box;
  }

  difference() {
    const [body, lines] = [{}, []];
    const mode = this.form.elements["placement-mode"].value;
    if (mode !== this.seen.mode) {
      body.mode = mode;
      lines.push(`mode ${this.seen.mode} → ${mode}`);
    }
    const pin = this.form.elements.pin.value.trim();
    if (mode === "pin" && pin !== (this.seen.pin ?? "")) {
      body.pin = pin;
      lines.push(`pinned to ${pin || "nothing"}`);
    }
    for (const [name, on] of Object.entries(this.seen.rules)) {
      const wanted = this.form.elements[`rule-${name}`].checked;
      if (wanted === on) continue;
      body.rules = { ...body.rules, [name]: wanted };
      lines.push(`rule ${words(name)} ${wanted ? "on" : "off"}`);
    }
    return { body, lines };
  }
}

export class Controls {
  #pause;
  #placement;
  #vm;

  /// `changed` is called when the machine may be another than was seen.
  constructor(changed) {
    radios(byId("pause-modes"), "pause-mode", MODES);
    radios(byId("placement-modes"), "placement-mode", PLACEMENTS);
    this.#pause = new PauseSettings(byId("pause-form"), "/api/v1/pause", "Change the pause handling?", changed);
    this.#placement = new PlacementSettings(byId("placement-form"), "/api/v1/placement", "Change the placement?", changed);
    for (const button of byId("buttons").querySelectorAll("button")) {
      button.addEventListener("click", () => this.#press(button.dataset.does, changed));
    }
  }

  async #press(name, changed) {
    const [method, path, body, title, meaning] = BUTTONS[name];
    if (!(await confirmed(title, [meaning], byId("buttons").querySelector(`[data-does=${name}]`).textContent))) return;
    try {
      await change(method, path, body, this.#vm.generation);
      tell(`Done: ${title.replace("?", "")}.`, false);
    } catch (error) {
      tellRefusal(error);
    }
    changed();
  }

  show(vm, pause, placement) {
    this.#vm = vm;
    for (const button of byId("buttons").querySelectorAll("button")) {
      button.hidden = !POSSIBLE[vm.state].includes(button.dataset.does);
    }
    say(byId("state"), vm.state);
    byId("state").dataset.state = vm.state;
    this.#pause.show(pause);
    this.#placement.show(placement);
  }
}
