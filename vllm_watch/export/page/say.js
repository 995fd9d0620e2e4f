// What a screen reader is told: once each, what came together in one go, and nothing that only ticks.

const GATHER_MS = 200;
const AT_MOST = 3; // of one kind; more are counted

const waiting = new Map(); // how those beyond the first few are counted ("" for what is always said) → sentences
let timer = null;

/** Say a sentence; of those said with the same `counted` in one go, the first few by name. */
export function say(text, counted = "") {
  if (!waiting.has(counted)) waiting.set(counted, []);
  waiting.get(counted).push(text);
  timer ??= setTimeout(() => {
    timer = null;
    document.getElementById("announce").textContent = [...waiting].flatMap(few).join(" ");
    waiting.clear();
  }, GATHER_MS);
}

const few = ([counted, sentences]) => counted && sentences.length > AT_MOST
  ? [...sentences.slice(0, AT_MOST), `And ${sentences.length - AT_MOST} ${counted}.`]
  : sentences;

/** Incidents that a reader has heard of, by what is said of them. */
export class Heard {
  constructor() {
    this.told = new Map(); // id → what was last said of it
  }

  /** What is open at first is in the sentence on top, which is said anyway. */
  begin(incidents) {
    this.told = new Map(incidents.map((incident) => [incident.id, signOf(incident)]));
  }

  /** Say which of `open` are new or called otherwise than before, and which have ended; `words(incident)` is a sentence. */
  follow(open, words, ended) {
    const fresh = open.filter((incident) => this.told.get(incident.id) !== signOf(incident));
    for (const incident of fresh) this.told.set(incident.id, signOf(incident));
    const still = new Set(open.map(({ id }) => id));
    const over = [...this.told.keys()].filter((id) => !still.has(id));
    for (const id of over) this.told.delete(id);
    for (const incident of fresh) say(words(incident), "more new incidents");
    for (const sentence of over.map(ended).filter(Boolean)) say(sentence, "more have ended");
  }
}

const signOf = ({ cause, severity }) => `${cause} ${severity}`;
