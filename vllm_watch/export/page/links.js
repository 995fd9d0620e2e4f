// Where to read on: the links of the configuration, a permalink, and an incident as Markdown for a chat or a ticket.

import { h, keyed, setAttribute } from "./dom.js";
import { sentence } from "./format.js";
import { runbookOf, standingOf } from "./words.js";

const BEFORE_SECONDS = 900; // what led to it
const AFTER_SECONDS = 300;
const SPAN_SECONDS = 3600; // of a target without an incident
const COPIED_MS = 2000;

/** The configured links, filled in for a target, and an incident of it if there is one. */
export class Links {
  constructor() {
    this.element = h("p", { class: "links", hidden: "" });
  }

  draw(page, name, incident, now) {
    const templates = Object.entries(page.watcher?.links ?? {});
    this.element.hidden = templates.length === 0;
    if (this.element.hidden) return;
    const values = valuesOf(page.targets.get(name)?.data ?? { name }, incident, now);
    keyed(this.element, templates, ([title]) => title, ([title]) => h("a", { target: "_blank", rel: "noopener noreferrer" }, title),
      (link, [, template]) => setAttribute(link, "href", template.replace(/\{(\w+)\}/g, (all, key) => encodeURIComponent(values[key] ?? all))));
  }
}

function valuesOf({ name, group = "", namespace = "", pod = "", node = "", signals }, incident, now) {
  const engines = Object.values(signals?.engines ?? {});
  const model = engines.map((engine) => engine.model_name).find(Boolean) ?? signals?.models?.[0] ?? "";
  const minute = Math.floor(now / 60) * 60; // so that a link stands still while a pointer rests on it
  const from = incident ? (incident.opened_timestamp_seconds ?? minute) - BEFORE_SECONDS : minute - SPAN_SECONDS;
  const to = incident?.resolved_timestamp_seconds ? incident.resolved_timestamp_seconds + AFTER_SECONDS : minute + 60;
  return { target: name, group, namespace, pod, node, model, from: Math.round(from * 1000), to: Math.round(to * 1000) };
}

/** A link to an incident on this page. */
export const permalink = (id) => h("a", { class: "permalink", href: `#${encodeURIComponent(`incident-${id}`)}` }, "Permalink");

/** A button that copies an incident as Markdown. `incident` gives what is newest. */
export function copyButton(incident) {
  const button = h("button", { type: "button", class: "copy" }, "Copy as Markdown");
  button.addEventListener("click", async () => {
    button.textContent = (await copied(markdown(incident()))) ? "Copied" : "Not copied: the browser refuses";
    setTimeout(() => { button.textContent = "Copy as Markdown"; }, COPIED_MS);
  });
  return button;
}

const utc = (t) => `${new Date(t * 1000).toISOString().slice(0, 19).replace("T", " ")} UTC`;
const here = (path) => new URL(path, location.href.replace(/#.*/, "")).href;
const listed = (title, items) => (items.length ? ["", `${title}:`, ...items.map(({ text }) => `- ${sentence(text)}`)] : []);

/** An incident as Markdown: what, where, since when, what to do, why, and links. */
export function markdown(incident) {
  const { id, target, engine, opened_timestamp_seconds: opened, began_timestamp_seconds: began, ended_timestamp_seconds: ended, resolved_timestamp_seconds: closed, evidence } = incident;
  const [from, to] = [began ?? opened, ended ?? closed];
  return [
    `**${standingOf(incident).word} · ${incident.title}** · ${target}${engine === null ? "" : ` engine ${engine}`}`, "",
    sentence(incident.summary), ...(incident.stacks ? [incident.stacks] : []), "",
    `- Since: ${opened === null ? "before the watcher started" : utc(from)}${to === null ? "" : `, until ${utc(to)}`}`,
    ...(to === null ? [`- Do: ${incident.first_step}`, `- Restart: ${incident.restart_outcome}`] : []),
    `- [Incident](${here(`#${encodeURIComponent(`incident-${id}`)}`)}) · [Runbook](${here(runbookOf(incident))})`,
    ...listed("Evidence", evidence.for), ...listed("Contradicting evidence", evidence.against), "",
  ].join("\n");
}

/** Was it copied? The clipboard's own way is there only where the page came over HTTPS or from this host. */
async function copied(text) {
  try {
    if (navigator.clipboard) {
      await navigator.clipboard.writeText(text);
      return true;
    }
  } catch { /* the older way, then */ }
  const area = h("textarea", { class: "sr" });
  area.value = text;
  document.body.append(area);
  area.select();
  const done = document.execCommand("copy");
  area.remove();
  return done;
}
