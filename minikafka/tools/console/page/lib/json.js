// JSON with indentation. Numbers keep their digits: JSON.parse would round integers beyond 2^53.

const TOKEN = /"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+/g;

/** Return JSON text with line breaks and indentation, or null if the text is not JSON. */
export function indented(text) {
  try {
    JSON.parse(text);
  } catch {
    return null;
  }
  let depth = 0;
  let result = "";
  const tokens = text.match(TOKEN) ?? [];
  tokens.forEach((token, at) => {
    const isEmpty = "{[".includes(token) && "}]".includes(tokens[at + 1] ?? " ");
    if ("}]".includes(token)) {
      depth -= 1;
      if (!"{[".includes(tokens[at - 1])) result += lineAt(depth);
    }
    result += token === ":" ? ": " : token;
    if ("{[".includes(token)) depth += 1;
    if (token === "," || ("{[".includes(token) && !isEmpty)) result += lineAt(depth);
  });
  return result;
}

const lineAt = (depth) => `\n${"  ".repeat(Math.max(0, depth))}`;
