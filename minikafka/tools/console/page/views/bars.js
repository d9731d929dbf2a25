// The logs of a partition's replicas as bars on one axis of offsets.

import { el, fill, svg } from "../lib/dom.js";
import { clock, duration, number } from "../lib/format.js";

const TAIL_MIN = 20;

const isKnown = (replica) => Number.isFinite(replica.log_end) && replica.log_end >= 0;

/** Return the first and last offset of the axis: of the whole logs, or of the part in which replicas differ. */
export function axisOf(replicas, isTail) {
  const known = replicas.filter(isKnown);
  const end = Math.max(1, ...known.map((replica) => replica.log_end));
  const start = Math.min(end, ...known.map((replica) => Math.max(0, replica.log_start ?? 0)));
  if (!isTail) return [start, Math.max(end, start + 1)];
  const least = Math.min(
    ...known.map((replica) => Math.min(replica.high_watermark ?? replica.log_end, replica.log_end)),
    end,
  );
  const shown = Math.max(TAIL_MIN, Math.ceil((end - least) * 1.3));
  return [Math.max(start, end - shown), end];
}

/** Draw a row for each replica: solid to the high watermark, hatched to the log end, with the epochs' first offsets. */
export function drawBars(parent, replicas, leader, { isTail, absence }) {
  const axis = axisOf(replicas, isTail);
  const watermark = replicas.find((replica) => replica.broker === leader)?.high_watermark;
  fill(
    parent,
    replicas.map((replica) => rowOf(replica, axis, leader, watermark, absence)),
    replicas.some(isKnown) &&
      el(
        "div",
        { class: "bar-row bar-axis", "aria-hidden": "true" },
        el("span", {}),
        el(
          "span",
          { class: "axis-ends" },
          el("span", {}, number(axis[0])),
          el("span", {}, "offset"),
          el("span", {}, number(axis[1])),
        ),
      ),
  );
}

function rowOf(replica, axis, leader, watermark, absence) {
  const isLeader = replica.broker === leader;
  const words = isLeader ? "leader" : replica.in_isr ? "in sync" : "not in sync";
  const state = replica.state && replica.state !== "running" ? `, broker ${replica.state}` : "";
  const role = isLeader ? "leader" : replica.in_isr ? "insync" : "lagging";
  const mark = isLeader ? "L" : replica.in_isr ? "●" : "○";
  return el(
    "div",
    { class: "bar-row", role: "group", "aria-label": spoken(replica, words + state) },
    el(
      "div",
      { class: "bar-label" },
      el("span", { class: `cell mark ${role}`, "aria-hidden": "true" }, mark),
      el("span", {}, el("strong", {}, `Broker ${replica.broker}`), el("small", {}, words + state)),
    ),
    el(
      "div",
      {},
      isKnown(replica)
        ? [picture(replica, axis, watermark, role), numbers(replica)]
        : el("p", { class: "muted" }, absence),
    ),
  );
}

function spoken(replica, words) {
  if (!isKnown(replica)) return `Broker ${replica.broker}, ${words}: offsets not known`;
  return (
    `Broker ${replica.broker}, ${words}: log start ${number(replica.log_start)}, high watermark ` +
    `${number(replica.high_watermark)}, log end ${number(replica.log_end)}`
  );
}

function picture(replica, [first, last], watermark, role) {
  const at = (offset) => `${Math.max(0, Math.min(100, ((offset - first) / (last - first)) * 100)).toFixed(3)}%`;
  const wide = (from, to) => `${Math.max(0, parseFloat(at(to)) - parseFloat(at(from)))}%`;
  const committed = Math.min(replica.high_watermark ?? replica.log_end, replica.log_end);
  return svg(
    "svg",
    { class: `log-bar ${role}${replica.is_old ? " old" : ""}`, height: 30, width: "100%", "aria-hidden": "true" },
    hatching(),
    svg("rect", { class: "track", x: 0, y: 6, width: "100%", height: 18, rx: 2 }),
    svg("rect", {
      class: "committed",
      x: at(replica.log_start ?? 0),
      y: 6,
      width: wide(replica.log_start ?? 0, committed),
      height: 18,
      rx: 2,
    }),
    svg("rect", {
      class: "uncommitted",
      fill: "url(#hatch)",
      x: at(committed),
      y: 6,
      width: wide(committed, replica.log_end),
      height: 18,
    }),
    (replica.epochs ?? [])
      .filter(([, offset]) => offset >= first && offset <= last)
      .slice(-12)
      .map(([epoch, offset]) => [
        svg("line", { class: "epoch", x1: at(offset), x2: at(offset), y1: 3, y2: 27 }),
        svg("text", { class: "epoch-text", x: at(offset), y: 19, dx: 4 }, `e${epoch}`),
      ]),
    watermark >= 0 && svg("line", { class: "watermark", x1: at(watermark), x2: at(watermark), y1: 0, y2: 30 }),
  );
}

function hatching() {
  return svg(
    "defs",
    {},
    svg(
      "pattern",
      {
        id: "hatch",
        width: 6,
        height: 6,
        patternUnits: "userSpaceOnUse",
        patternTransform: "rotate(45)",
      },
      svg("rect", { width: 6, height: 6, class: "hatch-ground" }),
      svg("line", { x1: 0, y1: 0, x2: 0, y2: 6, class: "hatch-line" }),
    ),
  );
}

function numbers(replica) {
  const pair = (name, value) => el("span", {}, el("span", { class: "muted" }, `${name} `), value);
  const behind = replica.log_end - (replica.high_watermark ?? replica.log_end);
  return el(
    "p",
    { class: "bar-numbers" },
    Number.isFinite(replica.log_start) && pair("start", number(replica.log_start)),
    pair("high watermark", number(replica.high_watermark)),
    pair("log end", number(replica.log_end)),
    behind > 0 && pair("uncommitted", number(behind)),
    Number.isFinite(replica.last_stable) &&
      replica.last_stable < replica.high_watermark &&
      pair("last stable", number(replica.last_stable)),
    !replica.is_old && replica.state !== "running" && pair("read from", "its files"),
    replica.is_old && pair("as seen at", clock(replica.seen_ms, false)),
    replica.lag_ms > 0 && pair("caught up", `${duration(replica.lag_ms)} ago`),
  );
}
