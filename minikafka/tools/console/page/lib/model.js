// The state of the cluster, as far as the server has sent it. Everything that grows has a limit.

import { isJoined } from "./feed.js";
import { EPOCH, ISR, LEADER, LOG_END, OFFLINE, REPLICAS, split } from "./rows.js";

const EVENTS_MAX = 200;
const KEYS_MAX = 2000;
const SECONDS_MAX = 120;
const FLASH_MS = 1500;

/** True if the leader, epoch, replicas or ISR differ. */
function isMoved(before, row) {
  return (
    before[LEADER] !== row[LEADER] ||
    before[EPOCH] !== row[EPOCH] ||
    [REPLICAS, ISR, OFFLINE].some((at) => String(before[at]) !== String(row[at]))
  );
}

export class Model extends EventTarget {
  cluster = null;
  brokers = new Map();
  partitions = new Map();
  order = [];
  unseen = new Map();
  problems = [];
  events = [];
  keys = new Set();
  seconds = [];
  rates = new Map();
  flashes = new Map();

  /** Replace everything by the snapshot of a cluster. */
  reset(cluster) {
    this.cluster = cluster;
    this.brokers = new Map((cluster.brokers ?? []).map((broker) => [broker.id, broker]));
    this.partitions = new Map(Object.entries(cluster.partitions ?? {}));
    this.problems = cluster.problems ?? [];
    this.rates.clear();
    this.flashes.clear();
    this.sort();
    this.changed();
  }

  /** Apply the changes since the last frame. */
  apply(frame) {
    if (!this.cluster) return;
    for (const broker of frame.brokers ?? [])
      this.brokers.set(broker.id, { ...this.brokers.get(broker.id), ...broker });
    Object.assign(this.cluster, frame.cluster ?? {});
    const isSorted = this.applyRows(frame, frame.time_ms ?? Date.now());
    if (frame.problems) this.problems = frame.problems;
    if (!isSorted) this.sort();
    this.changed();
  }

  applyRows(frame, now) {
    let isSorted = true;
    let sent = 0;
    for (const [name, row] of Object.entries(frame.partitions ?? {})) {
      const before = this.partitions.get(name);
      if (!before) isSorted = false;
      else sent += this.compare(name, before, row, now);
      this.partitions.set(name, row);
    }
    for (const name of frame.gone ?? []) {
      isSorted = !this.partitions.delete(name) && isSorted;
      this.rates.delete(name);
      this.flashes.delete(name);
    }
    this.addToSecond(now, sent);
    return isSorted;
  }

  /** Remember what has changed in a row; return the number of records that were appended. */
  compare(name, before, row, now) {
    const sent = Math.max(0, row[LOG_END] - before[LOG_END]);
    if (sent) this.rates.set(name, { sent, at: now });
    if (isMoved(before, row)) this.flashes.set(name, Date.now());
    return sent;
  }

  addToSecond(now, sent) {
    const second = Math.floor(now / 1000);
    const last = this.seconds.at(-1);
    if (last?.[0] === second) last[1] += sent;
    else this.seconds.push([second, sent]);
    if (this.seconds.length > SECONDS_MAX) this.seconds.splice(0, this.seconds.length - SECONDS_MAX);
  }

  /** True if the leader, epoch or ISR of a partition changed a moment ago. */
  isFlashing(name) {
    const at = this.flashes.get(name);
    if (at !== undefined && Date.now() - at > FLASH_MS) this.flashes.delete(name);
    return this.flashes.has(name);
  }

  addEvent(event) {
    if (this.keys.has(event.key)) return; // sent again after a new connection
    this.keys.add(event.key);
    if (this.keys.size > KEYS_MAX) this.keys.delete(this.keys.values().next().value);
    if (!isJoined(this.events.at(-1), event)) this.events.push(event);
    if (this.events.length > EVENTS_MAX) this.events.splice(0, this.events.length - EVENTS_MAX);
    this.changed();
  }

  forgetEvents() {
    this.events = [];
    this.keys.clear();
  }

  setUnseen(what, reason) {
    if (reason === null) this.unseen.delete(what);
    else this.unseen.set(what, { reason, since: this.unseen.get(what)?.since ?? Date.now() });
    this.changed();
  }

  sort() {
    const names = [...this.partitions.keys()].map((name) => [name, ...split(name)]);
    const isInternal = (topic) => Number(topic.startsWith("__")); // Kafka's own topics come last
    names.sort((a, b) => isInternal(a[1]) - isInternal(b[1]) || (a[1] < b[1] ? -1 : a[1] > b[1] ? 1 : a[2] - b[2]));
    this.order = names.map(([name]) => name);
  }

  changed() {
    this.dispatchEvent(new Event("change"));
  }

  get brokerIds() {
    return [...this.brokers.keys()].sort((a, b) => a - b);
  }

  get isReplay() {
    return this.cluster?.live === false;
  }
}
