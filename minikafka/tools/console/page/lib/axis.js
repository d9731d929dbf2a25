// An axis of time on which quiet times are short: between two events the length grows with the logarithm of the time.

const UNIT_MS = 20;

export class TimeAxis {
  /** `times`: the moments of events, in any order. Those outside of the axis do not count. */
  constructor(from, to, times = []) {
    const inner = times.filter((time) => time > from && time < to).sort((a, b) => a - b);
    this.moments = [from, ...new Set(inner), Math.max(to, from + 1)];
    this.ends = [0];
    for (let at = 1; at < this.moments.length; at += 1) {
      this.ends.push(this.ends[at - 1] + Math.log1p((this.moments[at] - this.moments[at - 1]) / UNIT_MS));
    }
  }

  /** Return where a time is, from 0 to 1. */
  fraction(time) {
    return between(time, this.moments, this.ends) / this.ends.at(-1);
  }

  /** Return the time at a place from 0 to 1. */
  time(fraction) {
    return between(fraction * this.ends.at(-1), this.ends, this.moments);
  }

  percent(time) {
    return `${(this.fraction(time) * 100).toFixed(3)}%`;
  }
}

/** Return the value of `to` that corresponds to a value of `from`; both lists ascend. */
function between(value, from, to) {
  if (value <= from[0]) return to[0];
  const at = from.findIndex((end) => end >= value);
  if (at < 0) return to.at(-1);
  return to[at - 1] + ((value - from[at - 1]) / (from[at] - from[at - 1])) * (to[at] - to[at - 1]);
}
