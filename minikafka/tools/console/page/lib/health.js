// The health of a cluster in words.

import { count, listed } from "./format.js";
import { ISR, REPLICAS, hasLeader, isPreferred, severity } from "./rows.js";

/** Return the numbers of partitions by state. */
export function counts(model) {
  const found = { all: model.partitions.size, offline: 0, under: 0, elsewhere: 0 };
  for (const row of model.partitions.values()) {
    const level = severity(row);
    found.offline += level === 2;
    found.under += level === 1;
    found.elsewhere += hasLeader(row) && !isPreferred(row);
  }
  return found;
}

/** Return one sentence about all partitions, and its level: ok, warn or bad. */
export function sentence(model, found) {
  if (!found.all) return { level: "ok", text: "The cluster has no topics yet." };
  const parts = [];
  if (found.offline) parts.push(`${found.offline} without a leader`);
  if (found.under) parts.push(`${found.under} under-replicated`);
  const down = missing(model);
  const because = down.length ? `: ${down.join("; ")}` : "";
  if (parts.length) {
    const level = found.offline ? "bad" : "warn";
    return { level, text: `Of ${count(found.all, "partition")}, ${parts.join(" and ")}${because}.` };
  }
  if (down.length)
    return { level: "warn", text: `All partitions have their replicas in sync, but ${down.join("; ")}.` };
  return { level: "ok", text: `${count(found.all, "partition")}, each with a leader and all replicas in sync.` };
}

function missing(model) {
  const brokers = [...model.brokers.values()].filter((broker) => broker.state !== "running");
  return brokers.map((broker) => `broker ${broker.id} is ${broker.state}`);
}

/** Return the state of one partition in words. */
export function partitionWords(row) {
  if (!hasLeader(row)) return "no leader";
  const out = row[REPLICAS].filter((id) => !row[ISR].includes(id));
  if (out.length) return `ISR lacks ${listed(out)}`;
  return isPreferred(row) ? "healthy" : "leader not preferred";
}
