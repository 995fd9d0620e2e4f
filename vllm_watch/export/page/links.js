// Where to read on: the links of the configuration, a permalink, and an incident as Markdown for a chat or a ticket.

import { often, worst } from "./before.js";
import { h, keyed, setAttribute } from "./dom.js";
import { inALine, withoutNextRule } from "./evidence.js";
import { age, sentence } from "./format.js";
import { modelOf } from "./signals.js";
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

/** Where an incident stands on this page. */
export const anchorOf = (id) => `#${encodeURIComponent(`incident-${id}`)}`;

/** A link to it. */
export const permalink = (id) => h("a", { class: "permalink", href: anchorOf(id) }, "Permalink");

/** A button that copies an incident as Markdown. `incident` gives what is newest, `told` what more there is to say: where its target is, of its restart, of what came before. */
export function copyButton(incident, told = () => ({})) {
  const button = h("button", { type: "button", class: "copy" }, "Copy as Markdown");
  button.addEventListener("click", async () => {
    button.textContent = (await copied(markdown(incident(), told()))) ? "Copied" : "Not copied: the browser refuses";
    setTimeout(() => { button.textContent = "Copy as Markdown"; }, COPIED_MS);
  });
  return button;
}

/** Where a target is: its address, what it serves, its pod, its host and its GPUs there; "" of what is no target. */
export function whereOf(page, name) {
  const data = page.targets.get(name)?.data;
  if (!data?.url) return "";
  const host = data.node || (/\/\/(127\.|localhost|\[::1\])/.test(data.url) ? `host ${page.watcher.host.name.replace(/^host:/, "")}` : "");
  const indices = (page.gpus?.gpus ?? []).filter(({ targets }) => targets?.includes(name)).map(({ index }) => index);
  return [data.url, modelOf(data), [data.namespace, data.pod].filter(Boolean).join("/"), host, indices.length ? `GPU ${indices.join(", ")}` : ""].filter(Boolean).join(" · ");
}

const utc = (t) => `${new Date(t * 1000).toISOString().slice(0, 19).replace("T", " ")} UTC`;
/** The page's address for whoever gets the text: `external_url`, with which the runbook's begins; without one, as the page was reached. */
const home = ({ runbook_url: url }) => (url.startsWith("/") ? location.href.replace(/#.*/, "") : url.slice(0, url.indexOf("/runbooks/") + 1));
const listed = (title, items) => (items.length ? ["", `${title}:`, ...items.map((item) => `- ${inALine(item)}`)] : []);

/** An incident as Markdown: what, where, since when, what to do, why, and links. */
export function markdown(incident, { restart = [], earlier = [], where = "" } = {}) {
  const { id, target, engine, opened_timestamp_seconds: opened, began_timestamp_seconds: began, ended_timestamp_seconds: ended, resolved_timestamp_seconds: closed, updated_timestamp_seconds: updated, evidence } = incident;
  const [from, to] = [began ?? opened, ended ?? closed];
  const most = to === null ? worst(incident, utc) : "";
  const at = (path) => new URL(path, home(incident)).href;
  return [
    `**${standingOf(incident).word} · ${incident.title}** · ${target}${engine === null ? "" : ` engine ${engine}`}`, "",
    sentence(incident.summary), ...(most ? [most] : []), ...(incident.stacks ? [incident.stacks] : []), "",
    ...(where ? [`- Where: ${where}`] : []),
    `- Since: ${opened === null ? "before the watcher started" : utc(from)}${to === null ? ` (as of ${utc(updated).slice(11)})` : `, until ${utc(to)}`}${often(incident)}`,
    ...(to === null ? [`- Cost: ${incident.cost}`, `- Do: ${incident.first_step}`, `- Restart: ${restart.join(" ")}`] : []),
    ...(earlier.length ? [`- Earlier on this target: ${earlier.map((each) => `${each.title} (${utc(each.from)}, lasted ${age(each.to - each.from)})`).join("; ")}`] : []),
    `- [Incident](${at(anchorOf(id))}) · [Runbook](${at(runbookOf(incident))})`,
    ...listed(`Evidence${to === null ? "" : ` as of ${utc(to).slice(11)}`}`, withoutNextRule(evidence.for)), ...listed("Contradicting evidence", evidence.against), "",
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
