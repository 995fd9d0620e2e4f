// What a screen reader is told: once each, what came together in one go, and nothing that only ticks.

const GATHER_MS = 200;
const AT_MOST = 3; // of one kind; more are counted

const waiting = [];
let timer = null;

/** Say a sentence. */
export function say(text) {
  waiting.push(text);
  timer ??= setTimeout(() => {
    timer = null;
    document.getElementById("announce").textContent = waiting.splice(0).join(" ");
  }, GATHER_MS);
}

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
    few(fresh.map(words), "more new incidents");
    few(over.map(ended).filter(Boolean), "more have ended");
  }
}

const signOf = ({ cause, severity }) => `${cause} ${severity}`;

function few(sentences, more) {
  for (const sentence of sentences.slice(0, AT_MOST)) say(sentence);
  if (sentences.length > AT_MOST) say(`And ${sentences.length - AT_MOST} ${more}.`);
}
