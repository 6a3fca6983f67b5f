// SPDX-License-Identifier: Apache-2.0
// The page as a whole: looks at the machine once a second, follows its events, and hands what it sees to the parts.

import { Controls } from "./controls.js";
import { DecisionFeed, EventFeed } from "./feeds.js";
import { History } from "./history.js";
import { HostMap } from "./host.js";
import { Ledger } from "./ledger.js";
import { Matrix } from "./matrix.js";
import { Refused, events, forgetToken, get, keepToken, serial, wantsToken } from "./server.js";
import { Tiles, describe } from "./tiles.js";
import { byId, bytes, count, duration, percent, say } from "./words.js";

const LOOK_MS = 1000;
/// Time between two attempts while the server is away, or there is no machine yet.
const AWAY_MS = 3000;
/// Looks between two of what seldom changes by itself.
const SELDOM = 5;
const DECISIONS = 64;
/// Characters of the console that are shown.
const CONSOLE = 16000;

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

class Page {
  #history = new History();
  #host = new HostMap(byId("host-map"));
  #ledger = new Ledger(byId("ledger"));
  #tiles = new Tiles(byId("tiles"));
  #matrix = new Matrix(byId("matrix"));
  #decisions = new DecisionFeed(byId("decisions"));
  #events = new EventFeed(byId("events"));
  #controls = new Controls(() => this.#hurry());
  #looks = 0;
  #held = false;
  #pid;
  #console = { next: undefined, decoder: new TextDecoder() };
  /// Ends the sleep between two looks.
  #hurry = () => {};

  constructor() {
    byId("hold").addEventListener("click", () => {
      this.#held = !this.#held;
      byId("hold").setAttribute("aria-pressed", String(this.#held));
      document.documentElement.dataset.held = this.#held ? "yes" : "no";
    });
  }

  async run() {
    this.#follow();
    for (;;) {
      const patience = document.hidden || this.#held ? LOOK_MS : await this.#tryToLook();
      let timer;
      await new Promise((resolve) => {
        timer = setTimeout(resolve, patience);
        this.#hurry = () => {
          this.#looks = 0;
          resolve();
        };
      });
      clearTimeout(timer);
    }
  }

  /// Looks at the machine; how long to wait until the next time.
  async #tryToLook() {
    try {
      await this.#look();
      this.#say("live", "live");
      return LOOK_MS;
    } catch (error) {
      if (error instanceof Refused && error.status === 401) return askForToken();
      const absent = error instanceof Refused && error.problem.code === "no_vm";
      this.#say(absent ? "none" : "away", absent ? "no machine yet" : "not reached");
      // Whatever it was, the next look may go well.
      if (!absent) console.error(error);
      return AWAY_MS;
    }
  }

  async #look() {
    const seldom = this.#looks % SELDOM === 0;
    this.#looks += 1;
    const [vcpus, decisions] = await Promise.all([get("/api/v1/vcpus"), get(`/api/v1/decisions?limit=${DECISIONS}`)]);
    if (seldom) await this.#lookAround();
    this.#history.look(vcpus);
    this.#host.vcpus(vcpus.vcpus);
    this.#ledger.show(vcpus.vcpus, this.#history);
    this.#tiles.show(this.#history);
    this.#matrix.show(vcpus.vcpus.length, decisions.pairs);
    this.#decisions.show(decisions);
    if (byId("console").open) await this.#lookAtConsole();
  }

  /// What changes seldom by itself.
  async #lookAround() {
    const paths = ["/api/v1/vm", "/api/v1/host", "/api/v1/pause", "/api/v1/placement", "/api/v1/thresholds"];
    const [vm, host, pause, placement, thresholds] = await Promise.all(paths.map(get));
    if (this.#pid !== vm.pid) {
      this.#pid = vm.pid;
      this.#console.next = undefined;
    }
    document.title = `vmm: ${vm.state}`;
    describe(vm, host);
    const up = vm.uptime_ns === undefined ? "" : ` · up ${duration(vm.uptime_ns)}`;
    say(byId("uptime"), `${bytes(vm.memory_bytes)} of memory${up}`);
    this.#host.host(host);
    const [events, stolen] = [thresholds.pause_events_per_s.granted, thresholds.steal_permille.granted / 1000];
    say(byId("thresholds"), `told from ${count(events)} pause events/s and ${percent(stolen)} stolen on`);
    this.#controls.show(vm, pause, placement);
  }

  async #lookAtConsole() {
    const { bytes: fresh, next } = await serial(this.#console.next);
    if (fresh.length === 0) return;
    this.#console.next = next;
    const where = byId("console-text");
    const text = this.#console.decoder.decode(fresh, { stream: true });
    // Sequences that colour a terminal, or move its cursor.
    const plain = text.replaceAll(/\u001b\[[0-9;?]*[ -/]*[@-~]|[\u0000-\u0008\u000b-\u001f]/gu, "");
    const down = where.scrollHeight - where.scrollTop - where.clientHeight < 40;
    where.textContent = (where.textContent + plain).slice(-CONSOLE);
    if (down) where.scrollTop = where.scrollHeight;
  }

  /// Follows events for ever. A settings change makes the next look a full one, at once.
  async #follow() {
    for (;;) {
      try {
        for await (const event of events(this.#events.last)) {
          this.#events.show(event);
          if (event.kind === "state_changed" || event.kind === "settings_changed") this.#hurry();
        }
      } catch (error) {
        if (error instanceof Refused && error.status === 401) return;
      }
      await sleep(LOOK_MS);
    }
  }

  #say(state, text) {
    document.documentElement.dataset.connection = state;
    say(byId("connection"), text);
  }
}

/// Shows the form for the token; the page begins anew when there is one.
function askForToken() {
  forgetToken();
  const dialog = byId("token-dialog");
  byId("token-form").addEventListener("submit", (event) => {
    event.preventDefault();
    keepToken(byId("token").value.trim());
    location.reload();
  });
  dialog.addEventListener("cancel", (event) => event.preventDefault());
  dialog.showModal();
  // Nothing is looked at until then.
  return 1 << 30;
}

if (wantsToken()) askForToken();
else await new Page().run();
