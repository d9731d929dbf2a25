// The banner and the badge of the connection: what cannot be seen, and what is wrong.

import { sentence } from "../lib/api.js";
import { el, fill, set, withCode, write } from "../lib/dom.js";
import { clock } from "../lib/format.js";

const byId = (id) => document.getElementById(id);

/** Write what is known into the page. `lost`: when the connection was lost; `refusal`: an error of the server. */
export function drawStatus(model, { lost, refusal }) {
  drawBanner([...connectionTexts(lost, refusal), ...unseenTexts(model), ...model.problems.map(problemText)]);
  const [level, text] = stateOf(model, lost);
  set(byId("connection"), "class", `badge ${level}`);
  write(byId("connection"), model.cluster?.user ? `${text} as ${model.cluster.user}` : text);
}

function connectionTexts(lost, refusal) {
  if (refusal) return [`${refusal.message} ${refusal.hint}`];
  if (!lost) return [];
  const since = clock(lost, false);
  return [`The console has not answered since ${since}. The page shows what was known then, and tries again.`];
}

function unseenTexts(model) {
  const isProblem = (what) =>
    model.problems.some(({ broker, text }) => what === `broker ${broker}` || text.startsWith(`${what} `));
  const texts = [...model.unseen].filter(([what]) => !isProblem(what));
  return texts.map(([what, { reason, since }]) => {
    if (model.isReplay) return sentence(reason);
    return sentence(`${what} cannot be seen since ${clock(since, false)}${reason ? ` (${reason})` : ""}`);
  });
}

function problemText({ text, remedy }) {
  return `${sentence(text)} ${remedy ? sentence(remedy) : ""}`.trim();
}

/** Replace the banner if it has changed: screen readers read it again then. */
function drawBanner(texts) {
  const banner = byId("banner");
  const written = JSON.stringify(texts);
  if (banner.dataset.texts === written) return;
  banner.dataset.texts = written;
  banner.hidden = texts.length === 0;
  const lines = texts.map((text) => el("li", {}, withCode(text)));
  fill(banner, el("ul", {}, lines));
}

function stateOf(model, lost) {
  if (lost) return ["bad", "✕ no connection"];
  if (model.isReplay) return ["", "replay"];
  return model.cluster ? ["ok", "● live"] : ["", "connecting"];
}
