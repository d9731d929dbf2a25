// A partition as the server sends it: an array, so that 10,000 of them are small.

export const LEADER = 0,
  EPOCH = 1,
  REPLICAS = 2,
  ISR = 3,
  OFFLINE = 4,
  HIGH_WATERMARK = 5,
  LOG_END = 6,
  LOG_START = 7;
export const ADDING = 8,
  REMOVING = 9,
  LAST_STABLE = 10;

export const hasLeader = (row) => row[LEADER] !== null && row[LEADER] !== undefined && row[LEADER] >= 0;

export const isUnderReplicated = (row) => row[ISR].length < row[REPLICAS].length - (row[ADDING]?.length ?? 0);

export const isPreferred = (row) => row[LEADER] === row[REPLICAS][0];

/** Return how bad the state of a partition is: 2 has no leader, 1 is under-replicated, 0 is healthy. */
export const severity = (row) => (hasLeader(row) ? Number(isUnderReplicated(row)) : 2);

/** Return the topic and number of the name of a partition. */
export function split(name) {
  const at = name.lastIndexOf("-");
  return [name.slice(0, at), Number(name.slice(at + 1))];
}

const MARKS = {
  leader: ["L", "leader"],
  insync: ["●", "in sync"],
  lagging: ["○", "not in sync"],
  offline: ["✕", "offline"],
  none: ["", "no replica"],
};

/** Return what a broker is to a partition: the state, the mark that is drawn, and its name in words. */
export function roleOf(row, broker) {
  const state = stateOf(row, broker);
  const [mark, words] = MARKS[state];
  const notes = [];
  if (row[REPLICAS][0] === broker) notes.push("preferred leader");
  if ((row[ADDING] ?? []).includes(broker)) notes.push("being added");
  if ((row[REMOVING] ?? []).includes(broker)) notes.push("being removed");
  return { state, mark, words: [words, ...notes].join(", "), isPreferred: row[REPLICAS][0] === broker };
}

function stateOf(row, broker) {
  if (row[LEADER] === broker) return "leader";
  if (!row[REPLICAS].includes(broker)) return "none";
  if ((row[OFFLINE] ?? []).includes(broker)) return "offline";
  return row[ISR].includes(broker) ? "insync" : "lagging";
}
