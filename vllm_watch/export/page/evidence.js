// Evidence for or against what is told: in words, with the numbers that the words leave out.

import { h, keyed, setText } from "./dom.js";
import * as format from "./format.js";
import { evidenceName } from "./words.js";

/** Does its text say its value? A word is no number. */
function isInText({ text, value, unit }) {
  if (value === null) return text !== "";
  if (typeof value === "string") return text.includes(value) || !/\d/.test(value);
  const number = unit === "ratio" ? value * 100 : value;
  const long = unit === "s" ? [format.age(value).replaceAll("\u202f", " ")] : [];
  return [Math.round(number), number.toFixed(1), ...long].some((shown) => new RegExp(`\\b${shown}(?!\\.?\\d)`).test(text));
}

/** Would the number beside its text be there twice? Not where it stands beside the one that is expected. */
function isSaid(item) {
  const { value, expected } = item;
  if (value !== null && value === expected) return true;
  return (expected === null || expected === 0) && isInText(item);
}

/** The evidence to list: the next rule stands in the sentence about severity or restart. */
export const withoutNextRule = (items) => items.filter(({ name }) => name !== "next_rule");

/** Its number, where its text does not say it; what it would be if all were well. */
const valueOf = (item) => (isSaid(item) ? "" : format.unit(item.value, item.unit));
const expectedOf = ({ expected, unit }) => (expected === null || expected === 0 ? "" : `expected ${format.unit(expected, unit)}`);

/** One piece of it in a line: "/health failed 8 times in a row (503, expected 200)". */
export function inALine(item) {
  const numbers = isInText(item) ? "" : [valueOf(item), expectedOf(item)].filter(Boolean).join(", ");
  return `${(format.sentence(item.text) || evidenceName(item.name)).replace(/\.$/, "")}${numbers && ` (${numbers})`}`;
}

/** One side of the evidence: each number in words, and beside it what it would be if all were well. */
export class Evidence {
  constructor(title, nothing) {
    this.list = h("ul");
    this.nothing = h("p", { class: "evidence-none" }, nothing);
    this.element = h("section", {}, h("h4", {}, title), this.list, this.nothing);
  }

  draw(items) {
    this.nothing.hidden = items.length > 0;
    this.list.hidden = items.length === 0;
    keyed(this.list, items.map((item, i) => [i, item]), ([i]) => i,
      () => {
        const [text, value, expected] = ["text", "value", "expected"].map((name) => h("span", { class: `evidence-${name}` }));
        return { element: h("li", {}, text, " ", h("span", { class: "evidence-numbers" }, value, " ", expected)), text, value, expected };
      },
      ({ text, value, expected }, [, item]) => {
        setText(text, format.sentence(item.text) || evidenceName(item.name));
        setText(value, valueOf(item));
        setText(expected, expectedOf(item));
      });
  }
}
