// What a person asks the watcher to do: a dialog that takes the reason and a token, and says what came of it.
// The token lives in this page's memory only, and goes when the page does.

import { h, setText } from "./dom.js";
import { say } from "./say.js";
import { resolutionOf } from "./words.js";

const TIMEOUT_MS = 45000; // the watcher itself asks its hook, blockers and lock for up to 30 s
const WRONG_TOKEN = 401;

let token = "";
let dialog = null;

/** Is somebody writing in it? */
export const isOpen = () => dialog?.element.open ?? false;

/** What it is about may end while it is open: then it says so, and asks for nothing any more. */
export function follow(page) {
  if (isOpen()) dialog.follow(page);
}

/** `wish`: path, incident (its id, where it is of one), title, text, act (the button), reason (true, "optional"), minutes (a default; null: none needed). */
export function ask(page, wish) {
  dialog ??= new Dialog();
  dialog.open(page, wish);
}

class Dialog {
  constructor() {
    this.title = h("h2", { id: "ask-title" });
    this.text = h("p");
    this.reason = h("input", { type: "text", maxlength: "500", autocomplete: "off" });
    this.minutes = h("input", { type: "number", min: "1", max: "43200", step: "1", inputmode: "numeric" });
    this.token = h("input", { type: "password", autocomplete: "off", spellcheck: "false" });
    this.reasonTitle = h("span");
    this.minutesTitle = h("span");
    this.fields = {
      reason: h("label", {}, this.reasonTitle, this.reason), minutes: h("label", {}, this.minutesTitle, this.minutes),
      token: h("label", {}, "Your token (kept in this page's memory only)", this.token),
    };
    this.said = h("p", { class: "ask-said", role: "alert", hidden: "" });
    this.act = h("button", { type: "submit", class: "act strong" });
    const cancel = h("button", { type: "button", class: "act" }, "Cancel");
    const form = h("form", { novalidate: "" }, ...Object.values(this.fields), this.said, h("div", { class: "ask-buttons" }, cancel, this.act));
    this.element = h("dialog", { class: "ask", "aria-labelledby": "ask-title" }, this.title, this.text, form);
    document.body.append(this.element);
    this.cancel = cancel;
    cancel.addEventListener("click", () => this.element.close());
    this.element.addEventListener("close", () => this.closed());
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.send();
    });
  }

  open(page, wish) {
    this.page = page;
    this.wish = wish;
    this.opener = document.activeElement;
    this.over = false;
    setText(this.cancel, "Cancel");
    setText(this.title, wish.title);
    setText(this.text, wish.text);
    setText(this.act, wish.act);
    setText(this.reasonTitle, wish.reason === "optional" ? "Reason (optional; written to the journal)" : "Reason (written to the journal)");
    setText(this.minutesTitle, wish.minutes === null ? "Minutes (none: until someone resumes them)" : "Minutes");
    this.reason.value = "";
    this.minutes.value = wish.minutes ?? "";
    this.token.value = "";
    this.fields.reason.hidden = !wish.reason;
    this.fields.minutes.hidden = wish.minutes === undefined;
    this.fields.token.hidden = token !== "";
    this.said.hidden = true;
    this.act.disabled = false;
    this.element.showModal();
    this.follow(page);
  }

  follow(page) {
    if (this.over || !this.wish.incident) return;
    const incident = page.incidents.known.get(this.wish.incident);
    if (incident?.state === "open") return;
    this.over = true;
    this.act.disabled = true;
    const how = incident ? ` (${resolutionOf(incident)})` : "";
    this.tell(`This incident has already ended${how}: nothing to approve.`);
    setText(this.cancel, "Close");
    this.cancel.focus();
  }

  /** The browser gives the focus back to the button that opened it; where that is gone, to what is nearest. */
  closed() {
    this.wish = null;
    if (!this.opener?.isConnected) (document.querySelector("#incidents:not([hidden])") ?? document.getElementById("targets")).focus();
  }

  async send() {
    const { wish } = this;
    if (this.over) return;
    if (token === "") token = this.token.value.trim();
    const reason = this.reason.value.trim();
    if (token === "" || (wish.reason === true && reason === "")) {
      this.tell(token === "" ? "A token is needed: one of api.tokens in the configuration." : "Give a reason: it is written to the journal.");
      return;
    }
    const body = {};
    if (wish.reason && reason) body.reason = reason;
    if (wish.minutes !== undefined && this.minutes.value !== "") body.minutes = Number(this.minutes.value);
    this.act.disabled = true;
    this.said.hidden = true; // what was said of the last try is not said of this one
    const { status, said } = await post(wish.path, body);
    if (this.wish !== wish) return;
    this.act.disabled = this.over;
    if (status === WRONG_TOKEN) {
      if (this.token.value.trim() === token) this.token.value = ""; // another may have been typed meanwhile
      token = "";
      this.fields.token.hidden = false;
    }
    if (status === 200 || status === 202) {
      this.element.close();
      say(said.text ?? "Done.");
    } else this.tell([said.error ?? `The watcher answered HTTP ${status}.`, ...others(said.gates), said.remedy].filter(Boolean).join(" – "));
  }

  tell(text) {
    this.said.hidden = false;
    setText(this.said, text);
  }
}

/** All that is against it beside the gate that decided, which the error already says. */
const others = (gates) => (gates ?? []).slice(1).map(({ text }) => `also: ${text}`);

async function post(path, body) {
  try {
    const answer = await fetch(path, {
      // With "omit" a browser would show no client certificate, where the server asks for one.
      method: "POST", body: JSON.stringify(body), credentials: "same-origin", signal: AbortSignal.timeout(TIMEOUT_MS),
      headers: { Authorization: `Bearer ${token}`, "Content-Type": "application/json" },
    });
    return { status: answer.status, said: await answer.json() };
  } catch {
    return { status: 0, said: { error: "No answer: check the journal for the result" } };
  }
}
