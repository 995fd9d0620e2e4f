// The way to a target's recording: a link that saves a file, and says in words why where it cannot.

import { h, setText } from "./dom.js";

const MINUTES = 10; // the default of recorder.minutes
const TIMEOUT_MS = 60000;

export class Recording {
  constructor(target) {
    const path = `api/v1/recording?target=${encodeURIComponent(target)}&minutes=${MINUTES}`;
    this.file = `${target.replace(/[^\w.-]/g, "_")}.jsonl.gz`;
    this.link = h("a", { class: "recording-link", href: path, download: this.file }, `Download recording (last ${MINUTES} min)`);
    this.said = h("span", { class: "recording-said", role: "alert" });
    this.element = h("p", { class: "recording" }, this.link, " ", this.said);
    this.link.addEventListener("click", (event) => {
      event.preventDefault();
      if (!this.busy) this.save(path);
    });
  }

  async save(path) {
    this.busy = true;
    setText(this.said, "");
    try {
      const answer = await fetch(path, { signal: AbortSignal.timeout(TIMEOUT_MS) });
      if (answer.ok) keep(await answer.blob(), this.file);
      else setText(this.said, await reasonOf(answer));
    } catch {
      setText(this.said, "Download failed: try again.");
    }
    this.busy = false;
  }
}

async function reasonOf(answer) {
  try {
    const { error, remedy } = await answer.json();
    return [error, remedy].filter(Boolean).join(". ");
  } catch {
    return `The watcher answered HTTP ${answer.status}.`;
  }
}

function keep(blob, name) {
  const url = URL.createObjectURL(blob);
  h("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), TIMEOUT_MS);
}
