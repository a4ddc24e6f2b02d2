// The connection to `tenure ui`: one question, or a stream of news that begins again when it breaks.

const KEY = "tenure-token";

/** Takes the token from the address, where it came from, and removes it there. */
export function takeToken() {
  const given = /^#token=([0-9a-f]{64})$/.exec(location.hash);
  if (!given) return;
  sessionStorage.setItem(KEY, given[1]);
  history.replaceState(null, "", location.pathname + "#/pools");
}

function headers() {
  return { "tenure-token": sessionStorage.getItem(KEY) ?? "" };
}

function address(path, query) {
  return `/v1/${path}?${new URLSearchParams(Object.entries(query).filter(([, value]) => value !== undefined && value !== null))}`;
}

async function get(path, query, signal) {
  const answer = await fetch(address(path, query), { headers: headers(), signal, cache: "no-store", credentials: "omit" });
  if (answer.ok) return answer;
  const error = new Error((await answer.text()).trim() || `status ${answer.status}`);
  error.status = answer.status;
  throw error;
}

/** One answer. */
export async function ask(path, query, signal) {
  return (await get(path, query, signal)).json();
}

/**
 * News of a page, until `close` of what is returned. `hear` gets the kind of each event and its data; `state` gets "live", or why there
 * is no news at present. After a break everything is told from its beginning.
 */
export function stream(query, hear, state) {
  const stop = new AbortController();
  (async () => {
    let wait = 250;
    while (!stop.signal.aborted) {
      try {
        const answer = await get("stream", query, stop.signal);
        state("live");
        wait = 250;
        await read(answer.body, (kind, data) => {
          if (!stop.signal.aborted) hear(kind, data);
        });
        state("The stream ended; asking again.");
      } catch (error) {
        if (stop.signal.aborted) return;
        state(error.status ? error.message : "`tenure ui` does not answer. If it was ended, start it again and open the address that it prints.", error.status);
        // Something that is not there yet may come; who may not read will not.
        if ([401, 403, 421].includes(error.status)) return;
      }
      await new Promise((resolve) => setTimeout(resolve, wait));
      wait = Math.min(wait * 2, 5000);
    }
  })();
  return { close: () => stop.abort() };
}

async function read(body, hear) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let parts = [];
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    parts.push(value);
    // An event ends with an empty line, which may be cut in two.
    const end = value.includes("\n\n") || (value.startsWith("\n") && parts.length > 1);
    if (!end) continue;
    const events = parts.join("").split("\n\n");
    parts = [events.pop()];
    for (const event of events) {
      let kind = "";
      let data = "";
      for (const line of event.split("\n")) {
        if (line.startsWith("event: ")) kind = line.slice(7);
        if (line.startsWith("data: ")) data += line.slice(6);
      }
      if (kind) hear(kind, JSON.parse(data));
    }
  }
}
