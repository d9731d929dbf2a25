// The events of the ledgers in words. Changes of many ISRs at one moment are one event.

import { listed } from "./format.js";

const KINDS = new Set(["event", "election", "isr", "broker", "group", "lost", "state-change"]);
const QUIET = new Set(["RebalanceDue", "IsrChanged", "DeletionsChanged", "StopReplicaAnswered"]);
const TOGETHER_MS = 3000;
const NAMED_MAX = 3;

/** Return an event {key, time, text} for a line of a ledger; null if the line says nothing new to people. */
export function eventOf(line, id) {
  if (!KINDS.has(line.kind) || QUIET.has(line.event)) return null;
  const key = id || `${line.broker}#${line.n}`;
  if (line.kind === "isr") return isrEvent(line, key);
  return { key, time: line.time, text: textOf(line) };
}

function textOf(line) {
  const text = (line.text ?? "").replaceAll(" -> ", " → ");
  if (line.kind === "broker") return `broker ${line.broker}: ${text}`;
  return line.partitions?.length ? `${named(line.partitions)}: ${text}` : text;
}

function isrEvent(line, key) {
  if (!line.before || !line.isr) return { key, time: line.time, text: textOf(line) };
  const left = line.before.filter((id) => !line.isr.includes(id));
  const joined = line.isr.filter((id) => !line.before.includes(id));
  const changes = [left.length && `${listed(left)} left the ISR`, joined.length && `${listed(joined)} joined the ISR`];
  const change = `${changes.filter(Boolean).join(", ")}${line.outcome === "ok" ? "" : ` (${line.outcome})`}`;
  return {
    key,
    time: line.time,
    change,
    names: [`${line.topic}-${line.partition}`],
    text: `${line.topic}-${line.partition}: ${change}`,
  };
}

/** Add an event to the last one if both are the same change of different partitions at one moment; true if so. */
export function isJoined(last, event) {
  if (!event.change || last?.change !== event.change || Math.abs(event.time - last.time) > TOGETHER_MS) return false;
  last.names.push(...event.names);
  last.text = `${named(last.names)}: ${last.change}`;
  return true;
}

function named(names) {
  const more = names.length - NAMED_MAX;
  return `${names.slice(0, NAMED_MAX).join(", ")}${more > 0 ? ` and ${more} more` : ""}`;
}
