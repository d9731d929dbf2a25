// Requests to the server of the console. Its contract is the table in docs/console.md.

const TOKEN = new URLSearchParams(location.search).get("token") ?? "";

/** An answer of the server that is an error: what is wrong, and what to do. */
export class ApiError extends Error {
  constructor(status, body) {
    super(sentence(body.error ?? `The console answered with status ${status}`));
    this.status = status;
    this.hint = sentence(body.hint ?? "");
  }
}

export const hasToken = TOKEN !== "";

let at = null;

/** Ask for the state at a time of a replay from now on. */
export function askFor(time) {
  at = time;
}

export async function get(path, parameters = {}) {
  return answerOf(fetch(withQuery(path, { at, ...parameters }), { headers: { "X-Minikafka-Token": TOKEN } }));
}

export async function post(path, body) {
  const headers = { "X-Minikafka-Token": TOKEN, "Content-Type": "application/json" };
  return answerOf(fetch(path, { method: "POST", headers, body: JSON.stringify(body) }));
}

/** Return an EventSource: events are sent until it is closed. EventSource cannot send headers. */
export function events(path, parameters = {}) {
  return new EventSource(withQuery(path, { ...parameters, token: TOKEN }));
}

function withQuery(path, parameters) {
  const present = Object.entries(parameters).filter(
    ([, value]) => value !== "" && value !== null && value !== undefined,
  );
  const query = new URLSearchParams(present).toString();
  return query ? `${path}?${query}` : path;
}

async function answerOf(request) {
  let response;
  try {
    response = await request;
  } catch {
    throw new ApiError(0, { error: "The console does not answer.", hint: "Start it again: minikafka console" });
  }
  const body = await response.json().catch(() => ({}));
  if (!response.ok) throw new ApiError(response.status, body);
  return body;
}

/** Return a message of the server as a sentence: with a full stop, and a capital letter unless it begins with a name. */
export function sentence(text) {
  const start = /^[a-z]+[ ,]/.test(text) ? text[0].toUpperCase() + text.slice(1) : text;
  return start && start + (/[.?!]$/.test(start) ? "" : ".");
}

export const segment = encodeURIComponent;

/** Call `load` now and every `ms` milliseconds after its end, while the page can be seen. Return a function that ends it. */
export function polled(load, ms) {
  let timer = 0;
  let isClosed = false;
  const next = async () => {
    if (!document.hidden) await load();
    if (!isClosed) timer = setTimeout(next, ms);
  };
  next();
  return () => {
    isClosed = true;
    clearTimeout(timer);
  };
}
