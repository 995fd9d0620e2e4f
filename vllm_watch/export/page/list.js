// The list of targets: which are shown, in which order, and the buttons and the field that narrow it down.

import { arrange, h, icon, keyed, setAttribute, setText } from "./dom.js";
import * as format from "./format.js";
import { modelOf, summary } from "./signals.js";
import { needsAttention, rankOf, severityOf, toneOf } from "./words.js";

const SEARCH_FROM = 7; // fewer are seen at a glance
const ROWS_AT_FIRST = 60; // the worst ones; the others are for who asks
const ROWS_MORE = 500; // at each asking: what a browser draws in a moment
export const WELL = 100; // the place of a row that needs nobody

const SORTS = { urgency: "urgency", name: "name", generation: "generation", running: "running", waiting: "waiting", kv: "KV cache", ttft: "TTFT p95" };

const $ = (id) => document.getElementById(id);
const collator = new Intl.Collator("en", { numeric: true });

export class List {
  constructor(page) {
    this.page = page;
    this.rows = new Map(); // by name
    this.byName = null; // the same, in order of name; null: not sorted yet
    this.filter = null;
    this.most = ROWS_AT_FIRST;
    this.sort = "urgency";
    $("sort").append(...Object.entries(SORTS).map(([value, title]) => h("option", { value }, `Sort: ${title}`)));
    $("sort").addEventListener("change", () => this.sortBy($("sort").value));
    for (const head of document.querySelectorAll("#columns-head [data-sort]")) head.addEventListener("click", () => this.sortBy(head.dataset.sort));
    $("group").addEventListener("click", () => this.toggle("group"));
    $("compact").addEventListener("click", () => this.toggle("compact"));
    $("search").addEventListener("input", () => this.arrange());
    $("more").addEventListener("click", () => {
      this.most += ROWS_MORE;
      this.arrange();
    });
  }

  add(row) {
    this.rows.set(row.name, row);
    this.byName = null;
  }

  remove(name) {
    this.rows.delete(name);
    this.byName = null;
  }

  sortBy(name) {
    this.sort = name;
    $("sort").value = name;
    this.arrange();
  }

  /** Group rows by model, or show each in one line. */
  toggle(id) {
    const on = $(id).getAttribute("aria-pressed") !== "true";
    setAttribute($(id), "aria-pressed", String(on));
    $("list").classList.toggle(id, on);
    this.arrange();
  }

  /** All rows in the order that was chosen: what is largest first, what is unknown last. */
  ordered(places) {
    const rows = [...places.keys()];
    if (this.sort === "name") return rows;
    if (this.sort === "urgency") return rows.sort((a, b) => places.get(a) - places.get(b));
    const values = new Map(rows.map((row) => [row, summary(row.data)[this.sort] ?? -1]));
    return rows.sort((a, b) => values.get(b) - values.get(a));
  }

  /** The rows' elements; grouped by model each group has a heading, and the group of the first row is first. */
  elements(rows) {
    const groups = new Map();
    for (const row of rows) {
      const model = $("list").classList.contains("group") ? modelOf(row.data) || "model unknown" : "";
      if (!groups.has(model)) groups.set(model, []);
      groups.get(model).push(row.element);
    }
    const heads = new Map();
    const found = [...groups].flatMap(([model, elements]) => {
      if (model === "") return elements;
      const head = this.heads?.get(model) ?? h("h3", { class: "group-head" });
      setText(head, `${model} · ${format.count(elements.length)}`);
      heads.set(model, head);
      return [head, ...elements];
    });
    this.heads = heads;
    return found;
  }

  /** All rows in order of name. */
  sorted() {
    this.byName ??= [...this.rows.values()].sort((a, b) => collator.compare(a.name, b.name));
    return this.byName;
  }

  /** Those that need someone first, the worst on top; the rest by name, so that rows do not jump about. */
  arrange() {
    const places = new Map(this.sorted().map((row) => [row, this.order(row)]));
    const rows = this.ordered(places);
    const words = $("search").value.toLowerCase().split(/\s+/).filter(Boolean);
    const found = rows.filter((row) => (this.filter === null || row.state === this.filter) && words.every((word) => row.words().includes(word)));
    const shown = found.filter((row, i) => i < this.most || row.isOpen);
    arrange($("list"), this.elements(shown));
    const left = found.length - shown.length;
    const unwell = found.slice(this.most).filter((row) => places.get(row) < WELL).length;
    $("more").hidden = left === 0;
    setText($("more"), `Show ${Math.min(left, ROWS_MORE)} more${left > ROWS_MORE ? ` of ${format.count(left)}` : ""}${unwell ? `; ${format.count(unwell)} of them need attention` : left === 1 ? " that is healthy" : " that are healthy"}`);
    $("empty").hidden = found.length > 0 || this.page.watcher === null;
    setText($("empty"), this.rows.size ? "No target matches." : this.page.watcher?.nothing_watched ?? "No target is watched. Start with --target HOST:8000, or name them in the configuration.");
    $("columns-head").hidden = shown.length === 0;
    $("search-label").hidden = this.rows.size < SEARCH_FROM;
    $("views").hidden = this.rows.size < SEARCH_FROM;
    for (const head of document.querySelectorAll("#columns-head [data-sort]")) setAttribute(head, "data-sorted", head.dataset.sort === this.sort ? "" : null);
    this.drawFilters(rows);
  }

  drawFilters(rows) {
    const counts = new Map();
    for (const row of rows) counts.set(row.state, (counts.get(row.state) ?? 0) + 1);
    if (this.filter !== null && !counts.has(this.filter)) counts.set(this.filter, 0);
    const states = [...counts].sort((a, b) => rankOf(a[0]) - rankOf(b[0]));
    const items = states.length > 1 || this.filter !== null ? [[null, rows.length], ...states] : [];
    keyed($("filters"), items, ([state]) => state ?? "all",
      ([state]) => {
        const number = h("span", { class: "filter-count" });
        const element = h("button", { type: "button", class: "filter", "data-tone": state === null ? "quiet" : toneOf(state) },
          ...(state === null ? [] : [icon(toneOf(state))]), state ?? "all", " ", number);
        element.addEventListener("click", () => {
          this.filter = this.filter === state ? null : state;
          this.arrange();
        });
        return { element, number };
      },
      ({ element, number }, [state, times]) => {
        setText(number, String(times));
        setAttribute(element, "aria-pressed", String(this.filter === state));
      });
  }

  /** List what matches some words. */
  find(words) {
    this.filter = null;
    $("search").value = words;
    this.arrange();
    $("targets").focus({ preventScroll: true });
    $("targets").scrollIntoView({ block: "start" });
  }

  /** Show all of them again. */
  widen() {
    this.filter = null;
    $("search").value = "";
  }

  /** The most urgent open incident of a row that someone should see to, or undefined. */
  urgent(row) {
    return this.page.incidents.activeOf(row.name).find(({ severity }) => severity !== "info");
  }

  /** The place of a row: what pages, then states that need someone, then tickets; then the others. */
  order(row) {
    const incident = this.urgent(row);
    const state = needsAttention(row.state) ? rankOf(row.state) : WELL;
    if (incident) return severityOf(incident).rank === 0 ? state - 2 * WELL : Math.min(state, WELL - 1);
    return state;
  }
}
