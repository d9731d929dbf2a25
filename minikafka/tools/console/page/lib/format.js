// Numbers, times and sizes as text.

const NUMBER = new Intl.NumberFormat("en");
const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];

export const number = (value) => (value === null || value === undefined || value < 0 ? "–" : NUMBER.format(value));

export function bytes(value) {
  if (value === null || value === undefined) return "–";
  let unit = 0;
  while (value >= 1024 && unit < UNITS.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${unit ? value.toFixed(1) : value} ${UNITS[unit]}`;
}

const two = (value) => String(value).padStart(2, "0");

/** Return the local time of a Unix time in milliseconds: 13:05:09.120. */
export function clock(ms, withMillis = true) {
  if (!Number.isFinite(ms)) return "–";
  const date = new Date(ms);
  const text = `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
  return withMillis ? `${text}.${String(date.getMilliseconds()).padStart(3, "0")}` : text;
}

/** Return the local date and time of a Unix time in milliseconds. */
export function moment(ms) {
  if (!Number.isFinite(ms) || ms < 0) return "–";
  const date = new Date(ms);
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ${clock(ms)}`;
}

export function duration(ms) {
  if (!Number.isFinite(ms)) return "–";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(1)} s`;
  if (ms < 3_600_000) return `${Math.floor(ms / 60_000)} min ${Math.round((ms % 60_000) / 1000)} s`;
  return `${Math.floor(ms / 3_600_000)} h ${Math.round((ms % 3_600_000) / 60_000)} min`;
}

export const count = (value, one, many = `${one}s`) => `${number(value)} ${value === 1 ? one : many}`;

export const listed = (values) => (values && values.length ? values.join(", ") : "none");
