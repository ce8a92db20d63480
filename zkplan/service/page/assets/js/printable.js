// Text of others, with characters that nobody sees, or that move others, written out. Without a browser.

const UNSEEN = /[\p{C}\p{Z}]/gu;
const SEEN = " \n\t";

/** As the commands of zkplan do it: "\x1b[2J" becomes text; line ends and tabs stay. */
export const printable = (text) => text.replace(UNSEEN, (each) => (SEEN.includes(each) ? each : escaped(each)));

function escaped(each) {
  if (each === "\r") return "\\r";
  const code = each.codePointAt(0).toString(16);
  if (code.length <= 2) return `\\x${code.padStart(2, "0")}`;
  return code.length <= 4 ? `\\u${code.padStart(4, "0")}` : `\\U${code.padStart(8, "0")}`;
}
