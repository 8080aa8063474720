"use strict";

// Texts of the data are of unknown origin: they reach the page as textContent or in a plot, never as markup.

const missing = "–";

/** A number with four digits, or as many as are asked for; a dash for null. */
function digits(value, precision = 4) {
  return value === null || value === undefined ? missing : String(Number(value.toPrecision(precision)));
}

function percent(share) {
  return share === null || share === undefined ? missing : `${digits(100 * share, 3)} %`;
}

function times(factor) {
  return factor === null || factor === undefined ? missing : `${factor.toFixed(factor < 10 ? 2 : 1)}×`;
}

function source(time) {
  if (!time || time.median_us === null) return missing;
  return time.measured ? "measured" : "modelled";
}

/** An element with attributes; children are elements or texts. */
function element(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

/** Words joined to lines of at most `width` letters where words allow it. */
function lines(text, width) {
  const made = [];
  for (const word of text.split(" ")) {
    const last = made.length - 1;
    if (last >= 0 && made[last].length + 1 + word.length <= width) made[last] += ` ${word}`;
    else made.push(word);
  }
  return made;
}

function median(time) {
  return time ? time.median_us : null;
}

/** The environment in one line. */
function machine(environment) {
  const driver = environment.driver ? `, driver ${environment.driver}` : "";
  return `${environment.device}, ${environment.workers} workers${driver}`;
}
