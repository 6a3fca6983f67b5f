// SPDX-License-Identifier: Apache-2.0
// Talks to the server that this page came from: requests, and events as they happen.
//
// Over TCP every request carries the token, which is kept for this tab and nowhere else.

const KEY = "vmm-token";
/// How long a request may take.
const PATIENCE_MS = 15000;

/// An answer that is an error: `status`, and the problem that its body tells of.
export class Refused extends Error {
  constructor(status, problem) {
    super(problem.message ?? `status ${status}`);
    this.status = status;
    this.problem = problem;
  }
}

/// Whether the server wants a token and this tab has none.
export const wantsToken = () =>
  document.documentElement.dataset.token === "needed" && sessionStorage.getItem(KEY) === null;

export const keepToken = (token) => sessionStorage.setItem(KEY, token);
export const forgetToken = () => sessionStorage.removeItem(KEY);

function headers(more) {
  const token = sessionStorage.getItem(KEY);
  return token === null ? more : { ...more, authorization: `Bearer ${token}` };
}

async function refused(response) {
  let problem = {};
  try {
    problem = await response.json();
  } catch {
    // Not one of ours; the status has to do.
  }
  return new Refused(response.status, problem);
}

/// Reads a resource.
export async function get(path) {
  const response = await fetch(path, { headers: headers({}), signal: AbortSignal.timeout(PATIENCE_MS) });
  if (!response.ok) throw await refused(response);
  return response.json();
}

/// Reads bytes of the serial port from number `from` on: their text, and the number of the byte that comes next.
export async function serial(from) {
  const path = from === undefined ? "/api/v1/serial" : `/api/v1/serial?from=${from}`;
  const response = await fetch(path, { headers: headers({}), signal: AbortSignal.timeout(PATIENCE_MS) });
  if (!response.ok) throw await refused(response);
  const next = Number(response.headers.get("serial-next"));
  return { bytes: new Uint8Array(await response.arrayBuffer()), next };
}

/// Asks for a change, only if the machine's generation is still the one that was looked at.
export async function change(method, path, body, generation) {
  const more = { "if-match": `"${generation}"` };
  if (body !== undefined) more["content-type"] = "application/json";
  const response = await fetch(path, {
    method,
    headers: headers(more),
    body: body === undefined ? undefined : JSON.stringify(body),
    signal: AbortSignal.timeout(PATIENCE_MS),
  });
  if (!response.ok) throw await refused(response);
  return response.status === 204 ? undefined : response.json();
}

/// Events from the one behind `after` on, until the connection ends (HTML, section 9.2; an EventSource sends no token).
export async function* events(after, signal) {
  const more = { accept: "text/event-stream", "last-event-id": String(after) };
  const response = await fetch("/api/v1/events", { headers: headers(more), signal });
  if (!response.ok) throw await refused(response);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      text += value;
      const parts = text.split("\n\n");
      text = parts.pop();
      for (const part of parts) {
        const data = part.split("\n").find((line) => line.startsWith("data: "));
        if (data !== undefined) yield JSON.parse(data.slice(6));
      }
    }
  } finally {
    // Whoever stops reading closes the connection.
    reader.cancel().catch(() => {});
  }
}
