// Is anything wrong? One sentence, and a second that names it, the worst first.

import * as format from "./format.js";
import { STORM_FROM } from "./words.js";

const NAMED = 3; // so many are named, the others counted

/** Each: {tone, text, more, count}. `bad`: rows that need someone, the worst first; `own`: what the watcher says of itself; `host`: incidents of its GPUs. */
export function verdict({ rows, bad, own, gpus, host, watcher }) {
  if (!watcher) return { tone: "quiet", text: "Loading …", more: "", count: 0 };
  const pages = host.filter(({ severity }) => severity === "page");
  const tickets = host.filter((incident) => !pages.includes(incident));
  const told = [...own, ...gpus, ...pages.map(({ summary }) => summary), ...named(bad), ...tickets.map(({ summary }) => summary)];
  const count = own.length + gpus.length + host.length + bad.length;
  if (count === 0) return { ...well(rows), count };
  const worst = own.length || gpus.length || pages.length || bad.some(({ row, incident }) => row.tone() === "bad" || incident?.severity === "page");
  return { tone: worst ? "bad" : "warn", text: whoNeeds(rows, bad, own, [...gpus, ...host]), more: `${told.map(withoutStop).join(" · ")}.`, count };
}

/** The worst by name, many of one trouble by their number, and how many more there are. */
function named(bad) {
  const alike = new Map();
  for (const one of bad) {
    const what = one.incident ? one.incident.title : one.row.state;
    if (!alike.has(what)) alike.set(what, []);
    alike.get(what).push(one);
  }
  const told = [...alike].flatMap(([what, members]) => (members.length >= STORM_FROM
    ? [{ count: members.length, text: `${members.length} targets ${what.charAt(0).toLowerCase()}${what.slice(1)}` }]
    : members.map(({ row, incident }) => ({ count: 1, text: `${row.name} ${incident ? incident.says : `is ${row.state}`}` }))));
  const left = told.slice(NAMED).reduce((sum, { count }) => sum + count, 0);
  return [...told.slice(0, NAMED).map(({ text }) => text), ...(left ? [`${left} more`] : [])];
}

const withoutStop = (text) => format.brief(text.replace(/\.$/, ""));

function whoNeeds(rows, bad, own, gpus) {
  const who = [...(own.length ? ["The watcher"] : []), ...(gpus.length ? [own.length ? "a GPU" : "A GPU"] : [])];
  if (bad.length) who.push(rows.length === 1 ? bad[0].row.name : `${bad.length} of ${rows.length} targets`);
  const one = who.length === 1 && bad.length < 2;
  return `${who.length === 3 ? `${who[0]}, ${who[1]} and ${who[2]}` : who.join(" and ")} ${one ? "needs" : "need"} attention`;
}

function well(rows) {
  if (rows.length === 0) return { tone: "quiet", text: "Nothing is watched", more: "" };
  const pending = rows.filter((row) => row.state === "waiting" || row.state === "starting");
  if (pending.length) {
    const words = pending.length === 1 ? `${pending[0].name} is ${pending[0].state === "starting" ? "starting" : "not scraped yet"}.` : `${pending.length} of ${rows.length} are starting or not scraped yet.`;
    const all = pending.length === rows.length;
    return { tone: all ? "info" : "good", text: all ? "Waiting for the first results" : "No target needs attention", more: words };
  }
  return { tone: "good", text: rows.length === 1 ? `${rows[0].name} is healthy` : `All ${rows.length} targets are healthy`, more: wellWords(rows) };
}

function wellWords(rows) {
  if (rows.length === 1) return rows[0].data.state_text;
  const counts = new Map();
  for (const row of rows) counts.set(row.state, (counts.get(row.state) ?? 0) + 1);
  return `${[...counts].map(([state, times]) => `${times} ${state}`).join(", ")}.`;
}

/** What is said while the watcher does not answer: since when, and what was last known. */
export function cutOff(before, silence) {
  const age = silence === null ? "" : ` Last update ${format.ago(silence)}:`;
  return { tone: "warn", text: "Disconnected from the watcher", more: `The current state is unknown.${age}${age ? ` ${before.text}.` : ""} Reconnecting.`, count: before.count };
}
