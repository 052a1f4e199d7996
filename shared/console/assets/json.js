// JSON whose whole numbers keep their digits. A browser counts exactly up to 2^53: the number of an account or a message may be
// longer, and another one would be shown, approved and sent. Browsers that do not tell how a number was written round it.

/** A whole number that is too long to be counted with. It counts as the nearest one, and reads as it was written. */
export class Whole extends Number {
  #digits;

  constructor(digits) { super(digits); this.#digits = digits; }

  toString() { return this.#digits; }
}

const exact = (_, value, context) => (typeof value === "number" && !Number.isSafeInteger(value) && /^-?\d+$/.test(context?.source ?? "") ? new Whole(context.source) : value);

/** The value that `text` says. */
export const read = (text) => (/\d{16}/.test(text) ? JSON.parse(text, exact) : JSON.parse(text));

/** `value` as text. */
export const write = (value, space) => JSON.stringify(value, (_, one) => (one instanceof Whole ? JSON.rawJSON(String(one)) : one), space);

/** True of what has nothing within. */
export const isPlain = (value) => value === null || typeof value !== "object" || value instanceof Whole;
