// Reads the records of the addon: see `src/record.rs`.
"use strict";

/** The bytes of a number. */
const NUMBER = 7;

class Record {
  #at;
  #text;

  constructor(text, at) {
    this.#text = text;
    this.#at = at;
  }

  get isOver() {
    return this.#at >= this.#text.length;
  }

  flag() {
    return this.#text.charCodeAt(this.#at++) === 1;
  }

  number() {
    let number = 0;
    for (let byte = NUMBER - 1; byte >= 0; byte--) number = number * 256 + this.#text.charCodeAt(this.#at + byte);
    this.#at += NUMBER;
    return number;
  }

  /** Seconds. */
  time() {
    return this.number() / 1e6;
  }

  /** Seconds, or null if it never ends. */
  wait() {
    const micros = this.number();
    return micros > Number.MAX_SAFE_INTEGER ? null : micros / 1e6;
  }

  text() {
    const length = this.number();
    const bytes = this.#text.slice(this.#at, (this.#at += length));
    return isAscii(bytes) ? bytes : Buffer.from(bytes, "latin1").toString("utf8");
  }
}

function isAscii(text) {
  for (let index = 0; index < text.length; index++) if (text.charCodeAt(index) > 127) return false;
  return true;
}

module.exports = { Record };
