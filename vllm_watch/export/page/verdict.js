// The headline: the worst trouble by name, then the others and how many need attention.

import * as format from "./format.js";
import { STORM_FROM } from "./words.js";

const NAMED = 3; // this many are named, the others counted

/** Each: {tone, text, more, count}. `bad`: rows that need attention, the worst first; `own`: troubles of the watcher; `host`: incidents of its GPUs. */
export function verdict({ rows, bad, own, gpus, host, watcher }) {
  if (!watcher) return { tone: "quiet", text: "Loading …", more: "", count: 0 };
  const count = own.length + gpus.length + host.length + bad.length;
  if (count === 0) return { ...well(rows), count };
  const critical = bad.filter(isCritical);
  const warning = bad.filter((one) => !isCritical(one));
  const pages = host.filter(({ severity }) => severity === "page");
  const tickets = host.filter((incident) => !pages.includes(incident));
  const urgent = [...grouped(critical), ...[...own, ...gpus, ...summaries(pages)].map(one)];
  const [worst, ...others] = [...urgent, ...grouped(warning), ...summaries(tickets).map(one)];
  const more = [also(others), total(rows, bad, own, [...gpus, ...host])].filter(Boolean).join(" ");
  return { tone: urgent.length ? "bad" : "warn", text: capital(withoutStop(worst.text)), more, count };
}

const isCritical = ({ row, incident }) => row.tone() === "bad" || incident?.severity === "page";
const summaries = (incidents) => incidents.map(({ summary }) => summary);
const one = (text) => ({ count: 1, text });
const capital = (text) => (/^(a|the|an) /.test(text) ? `${text.charAt(0).toUpperCase()}${text.slice(1)}` : text);
/** Without what only its card needs: PIDs and UUIDs in brackets, and the full stop. */
const withoutStop = (text) => format.brief(text.replace(/ \([^()]*\)/g, "").replace(/\.$/, ""));

/** One sentence for each row; a storm of one trouble is one sentence, and comes first. */
function grouped(bad) {
  const alike = new Map();
  for (const each of bad) {
    const trouble = each.incident ? each.incident.title : each.row.state;
    alike.set(trouble, [...(alike.get(trouble) ?? []), each]);
  }
  const sentences = [...alike].flatMap(([trouble, members]) => (members.length >= (members[0].incident ? STORM_FROM : NAMED)
    ? [{ count: members.length, text: `${members.length} targets ${members[0].incident ? "" : "are "}${trouble.charAt(0).toLowerCase()}${trouble.slice(1)}` }]
    : members.map(({ row, incident }) => one(incident ? `${row.name} ${incident.says}` : row.state === "unknown" ? `the state of ${row.name} is unknown` : `${row.name} is ${row.state}`))));
  return sentences.sort((a, b) => (b.count > 1) - (a.count > 1));
}

function also(others) {
  const left = others.slice(NAMED).reduce((sum, { count }) => sum + count, 0);
  const named = others.slice(0, NAMED).map(({ text }) => withoutStop(text));
  return named.length ? `Also: ${[...named, ...(left ? [`${left} more`] : [])].join(" · ")}.` : "";
}

/** How many need attention in all. */
function total(rows, bad, own, gpus) {
  const all = [bad.length && (rows.length === 1 ? "the target" : `${bad.length} of ${rows.length} targets`), gpus.length && "a GPU", own.length && "the watcher"].filter(Boolean);
  if (rows.length === 1 && all.length === 1) return "";
  const text = all.length === 3 ? `${all[0]}, ${all[1]} and ${all[2]}` : all.join(" and ");
  return capital(`${text} ${all.length === 1 && bad.length < 2 ? "needs" : "need"} attention.`);
}

function well(rows) {
  if (rows.length === 0) return { tone: "quiet", text: "Nothing is watched", more: "" };
  const pending = rows.filter((row) => row.state === "waiting" || row.state === "starting");
  if (pending.length) {
    const words = pending.length === 1 ? `${pending[0].name} is ${pending[0].state === "starting" ? "starting" : "not scraped yet"}.` : `${pending.length} of ${rows.length} are starting or not scraped yet.`;
    const all = pending.length === rows.length;
    return { tone: all || pending.some(({ state }) => state === "waiting") ? "info" : "good", text: all ? "Waiting for the first results" : "No target needs attention", more: words };
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
