// The GPUs of this host: how full each is, and who holds its memory.

import { h, keyed, setAttribute, setText } from "./dom.js";
import * as format from "./format.js";
import { HOT, PROCESS_STATES } from "./words.js";

const SHADES = 6; // told apart at a glance; the sizes and the list below say the rest

/** What is wrong with the GPUs, in sentences; `told`: incidents of the host, which tell of a broken GPU themselves. */
export function troubles(reading, told = []) {
  if (!reading) return [];
  if (reading.status === "hung") return ["The GPU driver does not answer"];
  if (reading.status === "error") return [`The GPUs cannot be read${reading.text ? ` (${reading.text})` : ""}`];
  if (told.some(({ kind }) => kind === "gpu_fault")) return [];
  const found = [];
  for (const gpu of reading.gpus ?? []) {
    if (gpu.lost) found.push(`GPU ${gpu.index} fell off the bus`);
    if (gpu.remapped_rows_failed) found.push(`GPU ${gpu.index} has unrecoverable memory errors`);
  }
  return found;
}

/** The sentence beside the heading. */
export function note(reading, now) {
  if (!reading) return "not polled yet";
  if (reading.status === "no_driver") return "no GPU driver on this host";
  if (reading.status !== "ok") return `${troubles(reading).join("; ")}. ${reading.text}`;
  const parts = [reading.driver_version ? `driver ${reading.driver_version}` : null, `polled ${format.ago(now - reading.t)}`];
  return parts.filter(Boolean).join(" · ");
}

export function draw(parent, reading, now) {
  keyed(parent, reading?.gpus ?? [], (gpu) => gpu.uuid, () => new Gpu(), (card, gpu) => card.draw(gpu, now));
}

class Gpu {
  constructor() {
    this.title = h("h3");
    this.uuid = h("p", { class: "uuid" });
    this.meters = h("dl", { class: "meters" });
    this.chips = h("ul", { class: "chips" });
    this.used = h("p", { class: "memory-text" });
    this.bar = h("div", { class: "memory", role: "img" });
    this.rows = h("tbody");
    this.table = h("table", { class: "holders" },
      h("thead", {}, h("tr", {}, ...["process", "pid", "user", "holds", "age", "verdict", "command line"].map((t) => h("th", { scope: "col" }, t)))), this.rows);
    this.nobody = h("p", { class: "nobody" });
    this.unaccounted = h("p", { class: "reason" });
    this.element = h("article", { class: "gpu" },
      h("header", {}, h("div", {}, this.title, this.uuid), this.meters), this.chips, this.used, this.bar, this.table, this.unaccounted, this.nobody);
  }

  draw(gpu, now) {
    setText(this.title, [`GPU ${gpu.index}`, gpu.name ?? "name unknown", (gpu.targets ?? []).join(", ")].filter(Boolean).join(" · "));
    setText(this.uuid, gpu.uuid + (gpu.mig_parent_uuid ? ` · slice of ${gpu.mig_parent_uuid}` : ""));
    setAttribute(this.element, "data-tone", gpu.lost ? "bad" : gpu.stale_bytes ? "warn" : "good");
    keyed(this.meters, metersOf(gpu), ([name]) => name,
      ([name]) => {
        const value = h("dd");
        return { element: h("div", {}, h("dt", {}, name), value), value };
      },
      ({ value }, [, text]) => setText(value, text));
    keyed(this.chips, chipsOf(gpu), ([text]) => text, ([text, tone]) => h("li", { "data-tone": tone }, text), () => undefined);
    this.drawMemory(gpu);
    this.drawHolders(gpu, now);
  }

  drawMemory(gpu) {
    const { memory_total_bytes: total, memory_used_bytes: used } = gpu;
    const parts = used === null || total === null ? [] : segments(gpu);
    setText(this.used, memoryText(gpu, parts));
    setAttribute(this.bar, "aria-label", `Memory: ${parts.map(({ title }) => title).join(", ") || "unknown"}`);
    this.bar.classList.toggle("unknown", parts.length === 0);
    keyed(this.bar, parts, ({ key }) => key, () => h("span"), (element, part) => {
      setAttribute(element, "class", part.shade);
      setAttribute(element, "title", part.title);
      element.style.width = `${(100 * part.bytes) / total}%`;
    });
  }

  drawHolders(gpu, now) {
    const processes = gpu.processes ?? [];
    this.table.hidden = processes.length === 0;
    this.nobody.hidden = processes.length > 0;
    const rest = gpu.unaccounted;
    this.unaccounted.hidden = rest?.verdict !== "stale";
    setText(this.unaccounted, rest?.verdict === "stale" ? `Stale: ${reasonText(rest)}` : "");
    setText(this.nobody, gpu.processes === null ? "Memory holders unknown." : "No process holds memory.");
    keyed(this.rows, processes, ({ pid }) => pid, (process) => new Holder(process),
      (row, process) => row.draw(process, shadeOf(processes, processes.indexOf(process)), now));
  }
}

class Holder {
  constructor({ pid }) {
    this.swatch = h("span", { class: "swatch", "aria-hidden": "true" });
    this.name = h("span", { class: "process-name" });
    this.command = h("td", { class: "command" });
    const cell = (title, className) => h("td", { "data-title": title, class: className });
    this.user = cell("user");
    this.bytes = cell("holds", "holds");
    this.age = cell("age");
    this.verdict = cell("verdict");
    this.reason = h("td", { class: "reason" });
    this.element = h("tr", {},
      h("th", { scope: "row" }, h("span", { class: "process" }, this.swatch, this.name)),
      h("td", { "data-title": "pid", class: "pid" }, String(pid)), this.user, this.bytes, this.age, this.verdict, this.command, this.reason);
  }

  draw(process, shade, now) {
    const command = process.cmdline?.join(" ") ?? "";
    setAttribute(this.swatch, "class", `swatch ${process.used_bytes === null ? "none" : shade}`);
    setText(this.name, process.name ?? "name unknown");
    this.command.hidden = command === "" || command === process.name;
    setText(this.command, command);
    setAttribute(this.command, "title", command);
    setText(this.user, process.uid === null ? format.UNKNOWN : process.uid === 0 ? "root" : `uid ${process.uid}`);
    setText(this.bytes, process.used_bytes === null ? "unknown" : format.bytes(process.used_bytes));
    setText(this.age, process.create_time === null ? format.UNKNOWN : format.age(now - process.create_time));
    setText(this.verdict, process.verdict);
    setAttribute(this.verdict, "title", [PROCESS_STATES[process.state] ?? format.text(process.state), process.place].filter(Boolean).join(" · "));
    setAttribute(this.verdict, "data-tone", process.verdict === "stale" ? "bad" : process.verdict === "unknown" ? "warn" : null);
    this.reason.hidden = process.verdict !== "stale";
    setText(this.reason, process.verdict === "stale" ? reasonText(process) : "");
  }
}

/** Why it is called so, and what to do. */
function reasonText({ evidence, remedy }) {
  const why = `${format.sentence(evidence.join("; "))}.`;
  return remedy ? `${why} Do: ${remedy}.` : why;
}

function memoryText({ memory_total_bytes: total, memory_used_bytes: used, processes }, parts) {
  if (used === null) return "memory unknown";
  const share = total === null ? "" : ` · ${format.ratio(used / total)}`;
  const rest = parts.find(({ key }) => key === "rest");
  const hidden = processes?.some((process) => process.used_bytes === null) ?? true;
  const whose = rest && rest.bytes > used / 1000 ? ` · ${format.bytes(rest.bytes)} ${hidden ? "not known per process" : "held by unlisted processes"}` : "";
  return `${format.bytes(used)} of ${format.bytes(total)} in use${share}${whose}`;
}

/** The first shade is vLLM's: of a GPU that it has left, another process must not look like it. */
const shadeOf = (processes, i) => `shade-${Math.min(processes[0].verdict === "vllm" ? i : i + 1, SHADES - 1)}`;

/** The pieces of the bar: each holder, what no listed process holds, what the driver keeps; the rest is free. */
function segments(gpu) {
  const processes = gpu.processes ?? [];
  const parts = processes.flatMap((process, i) => (process.used_bytes === null ? [] : [{
    key: process.pid, bytes: process.used_bytes, shade: shadeOf(processes, i),
    title: `${process.name ?? "process"} (pid ${process.pid}) ${format.bytes(process.used_bytes)}`,
  }]));
  const rest = gpu.memory_used_bytes - parts.reduce((sum, part) => sum + part.bytes, 0);
  if (rest > 0) parts.push({ key: "rest", bytes: rest, shade: "rest", title: `held by unlisted processes ${format.bytes(rest)}` });
  if (gpu.memory_reserved_bytes) {
    parts.push({ key: "reserved", bytes: gpu.memory_reserved_bytes, shade: "reserved", title: `reserved by the driver ${format.bytes(gpu.memory_reserved_bytes)}` });
  }
  return parts;
}

function metersOf(gpu) {
  const clock = gpu.sm_clock_hz === null ? format.UNKNOWN : `${format.number(gpu.sm_clock_hz / 1e9)}\u202fGHz`;
  const power = gpu.power_watts === null ? format.UNKNOWN : `${format.number(Math.round(gpu.power_watts))}\u202fW`;
  const heat = gpu.temperature_celsius === null ? format.UNKNOWN : `${format.number(Math.round(gpu.temperature_celsius))}\u202f°C`;
  const fan = gpu.fan_ratio === null ? [] : [["fan", format.ratio(gpu.fan_ratio)]];
  return [["util", format.ratio(gpu.utilization_ratio)], ["temp", heat], ...fan, ["power", power], ["SM clock", clock]];
}

/** What is out of the ordinary. */
function chipsOf(gpu) {
  const chips = [];
  if (gpu.lost) chips.push(["lost: fell off the bus", "bad"]);
  if (gpu.stale_bytes) chips.push([`${format.bytes(gpu.stale_bytes)} held by stale processes`, "warn"]);
  for (const reason of gpu.throttle_reasons ?? []) {
    if (HOT.has(reason)) chips.push([`slowed: ${reason.replaceAll("_", " ")}`, "warn"]);
    else if (reason === "sw_power_cap") chips.push(["at its power cap", "quiet"]);
  }
  for (const [code, times] of Object.entries(gpu.xid_errors_total ?? {})) chips.push([`Xid ${code} · ${times}×`, "bad"]);
  if (gpu.ecc_uncorrected) chips.push([`${format.count(gpu.ecc_uncorrected)} uncorrected memory errors`, "bad"]);
  if (gpu.remapped_rows_failed) chips.push(["row remapping failed", "bad"]);
  else if (gpu.remapped_rows_pending) chips.push(["rows pending remap: reset the GPU", "warn"]);
  return chips;
}
