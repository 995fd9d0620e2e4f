// Numbers as people read them. Unknown (null) is "–" everywhere, never 0.

export const UNKNOWN = "–";
const THIN = "\u202f"; // between number and unit: they must not part at a line's end

const known = (value) => typeof value === "number" && Number.isFinite(value);
const grouped = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

/** A number with about three digits that count, in the unit of `like`. */
export function number(value, like = value) {
  if (!known(value)) return UNKNOWN;
  const size = Math.abs(like);
  if (size >= 1e18) return value.toExponential(1).replace("e+", "e");
  for (const [least, letter] of [[1e15, "P"], [1e12, "T"], [1e9, "G"]]) if (size >= least) return `${trim(value / least, 2)}${letter}`;
  if (size >= 1e6) return `${trim(value / 1e6, 2)}M`;
  if (size >= 1e5) return `${trim(value / 1e3, 0)}k`;
  if (Math.abs(value) >= 100) return grouped.format(value);
  if (Math.abs(value) >= 10) return trim(value, 1);
  return trim(value, 2);
}

function trim(value, digits) {
  const text = value.toFixed(digits);
  return digits ? text.replace(/\.?0+$/, "") : text;
}

/** A count: whole where it is whole. */
export const count = (value, like = value) => (known(value) && Number.isInteger(value) && Math.abs(like) < 1e5 ? grouped.format(value) : number(value, like));

export const rate = (unit) => (value) => (known(value) ? `${number(value)}${THIN}${unit}` : UNKNOWN);

/** 0 to 1 as a percentage. */
export function ratio(value) {
  if (!known(value)) return UNKNOWN;
  const percent = value * 100;
  if (Math.abs(percent) >= 1e5) return `${number(percent)}${THIN}%`;
  return `${percent !== 0 && Math.abs(percent) < 10 ? trim(percent, 1) : Math.round(percent)}${THIN}%`;
}

/** A duration in the unit that fits: µs, ms, s, min, h, d. */
export function seconds(value) {
  if (!known(value)) return UNKNOWN;
  const size = Math.abs(value);
  if (size === 0) return `0${THIN}s`;
  if (size < 0.001) return `${digits(value * 1e6)}${THIN}µs`;
  if (size < 1) return `${digits(value * 1e3)}${THIN}ms`;
  if (size < 60) return `${digits(value)}${THIN}s`;
  return age(value);
}

/** A duration in one unit, as short as the label of an axis must be. */
export function tick(value) {
  if (!known(value) || Math.abs(value) < 60) return seconds(value);
  if (Math.abs(value) < 600 && value % 60) return `${number(value)}${THIN}s`;
  return Math.abs(value) < 3600 ? `${number(value / 60)}${THIN}min` : `${number(value / 3600)}${THIN}h`;
}

const digits = (value) => (Math.abs(value) >= 100 ? value.toFixed(0) : Math.abs(value) >= 10 ? trim(value, 1) : trim(value, 2));

/** A quantile; one in the histogram's lowest bucket is only known to be below its bound. */
export const quantile = (value, firstBound) => (known(value) && known(firstBound) && value <= firstBound ? `<${THIN}${seconds(firstBound)}` : seconds(value));

/** How long something has been: whole seconds, then the two largest units. */
export function age(value) {
  if (!known(value)) return UNKNOWN;
  const total = Math.max(0, Math.round(value));
  if (total < 60) return `${total}${THIN}s`;
  const units = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
  const first = units.findIndex(([, size]) => total >= size);
  const [name, size] = units[first];
  const whole = Math.floor(total / size);
  if (whole >= 1000) return `${number(whole)}${THIN}${name}`;
  const [nextName, nextSize] = units[first + 1];
  const rest = Math.floor((total - whole * size) / nextSize);
  return rest ? `${whole}${THIN}${name} ${rest}${THIN}${nextName}` : `${whole}${THIN}${name}`;
}

/** What is told of an incident whose trouble is gone. */
export function recovery({ began_timestamp_seconds: from, ended_timestamp_seconds: to, closes_timestamp_seconds: closes }, now) {
  return `Recovered ${ago(now - to)}, after ${age(to - from)}${closes === null ? "" : `; closes at ${clock(closes)} if it stays healthy`}.`;
}

export const ago = (value) => (known(value) ? `${age(value)} ago` : "never");

/** Bytes in binary units, as GPU memory is spoken of. */
export function bytes(value) {
  if (!known(value)) return UNKNOWN;
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
  let power = 0;
  let rest = value;
  while (Math.abs(rest) >= 1024 && power < units.length - 1) {
    rest /= 1024;
    power += 1;
  }
  if (Math.abs(rest) >= 1e5) return `${number(rest)}${THIN}${units[power]}`;
  return `${power === 0 ? rest : rest >= 1000 ? rest.toFixed(0) : rest.toFixed(1)}${THIN}${units[power]}`;
}

/** A clause as a sentence begins; a path or a product’s name stays as it is. */
export const sentence = (text) => (/^(?!vllm)[a-z]/i.test(text) ? text.charAt(0).toUpperCase() + text.slice(1) : text);

/** A text of any length: its beginning, where it is too long to be read. */
export const brief = (value, most = 300) => (value.length > most ? `${value.slice(0, most - 1)}…` : value);

/** A value in the unit that a detector names; words stay words. */
export function unit(value, name) {
  if (typeof value === "string") return value;
  if (!known(value)) return UNKNOWN;
  if (name === "s" || name === "seconds") return seconds(value);
  if (name === "ratio") return ratio(value);
  if (name === "bytes") return bytes(value);
  if (name === "bytes/s" || name === "bytes_per_second") return `${bytes(value)}/s`;
  if (name === "celsius") return `${number(value)}${THIN}°C`;
  if (name === "hertz" || name === "hz") return `${number(value / 1e9)}${THIN}GHz`;
  const words = name.replace("_per_second", "/s").replaceAll("_", " ");
  return words ? `${count(value)}${THIN}${words}` : count(value);
}

/** When something was: the time of day, and the date unless it is today's. */
export function moment(t, now) {
  const [then, today] = [new Date(t * 1000), new Date(now * 1000)];
  if (then.toDateString() === today.toDateString()) return clock(t);
  return `${then.toLocaleDateString("en-GB", { day: "numeric", month: "short" })} ${clock(t)}`;
}

/** The browser's time zone: messages are in UTC. */
export const zone = (t) => new Date(t * 1000).toLocaleTimeString("en-GB", { timeZoneName: "short" }).split(" ").pop();

/** The time of day of a Unix time. */
export const clock = (t) => new Date(t * 1000).toLocaleTimeString("en-GB");

export const text = (value) => (value === null || value === undefined || value === "" ? UNKNOWN : String(value));
