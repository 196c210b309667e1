// Streams as clients for JavaScript decode them. Runs where the clients are installed; its argument, stdin and
// stdout are those of decoding.py.

import { readFileSync } from "node:fs";
import Anthropic from "@anthropic-ai/sdk";
import { convertEventStreamToIterableReadableDataStream } from "@langchain/core/utils/event_source_parse";
import { fetchEventSource } from "@microsoft/fetch-event-source";
import { EventSource } from "eventsource";
import { createParser } from "eventsource-parser";
import OpenAI from "openai";

const base = process.argv[2];
const paths = {
  chat: "/v1/chat/completions",
  completions: "/v1/completions",
  responses: "/v1/responses",
  anthropic: "/v1/messages",
};
const messages = [{ role: "user", content: "hello" }];
const openai = new OpenAI({ baseURL: `${base}/v1`, apiKey: "x", maxRetries: 0, logLevel: "off" });
const anthropic = new Anthropic({ baseURL: base, apiKey: "x", maxRetries: 0, logLevel: "off" });
// fetch-event-source is for browsers.
globalThis.window = globalThis;
globalThis.document = { removeEventListener() {} };

class Shown extends Error {}

function textOf(piece) {
  if (piece.choices) return piece.choices.map((choice) => choice.text ?? choice.delta.content).join("");
  return (typeof piece.delta === "string" ? piece.delta : piece.delta?.text) ?? "";
}

// The text of an event's data, for programs that parse them by themselves.
function textOfData(data) {
  const piece = JSON.parse(data);
  if (piece.error) throw new Shown(piece.error.message);
  return textOf(piece);
}

function request(model) {
  return {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ model, stream: true }),
  };
}

async function each(pieces, take) {
  for await (const piece of await pieces) take(textOf(piece));
}

function throughEventSource(model, api, take) {
  return new Promise((resolve, reject) => {
    const source = new EventSource(base + paths[api], {
      fetch: (at, init) => fetch(at, { ...init, ...request(model) }),
    });
    const ended = (end, what) => (source.close(), end(what));
    const takeEvent = (event) => {
      try {
        take(textOfData(event.data));
      } catch (error) {
        ended(reject, error);
      }
    };
    for (const name of ["message", "ping", "response.output_text.delta", "content_block_delta"])
      source.addEventListener(name, takeEvent);
    // An event of the stream that is named error, or else the end of the stream.
    source.addEventListener("error", (event) =>
      event.data === undefined ? ended(resolve) : takeEvent(event),
    );
  });
}

async function throughParser(model, api, take) {
  const parser = createParser({
    onEvent: (event) => take(textOfData(event.data)),
    onError: (error) => {
      throw error;
    },
  });
  const response = await fetch(base + paths[api], request(model));
  const decoder = new TextDecoder();
  for await (const chunk of response.body) parser.feed(decoder.decode(chunk, { stream: true }));
}

async function throughLangChain(model, api, take) {
  const response = await fetch(base + paths[api], request(model));
  const pieces = convertEventStreamToIterableReadableDataStream(response.body);
  try {
    for await (const data of pieces) take(textOfData(data));
  } catch (error) {
    // The message is the data of the event, as they came.
    if (error.message.startsWith("{")) textOfData(error.message);
    throw error;
  }
}

function throughFetch(model, api, take) {
  return fetchEventSource(base + paths[api], {
    ...request(model),
    fetch,
    openWhenHidden: true,
    onmessage: (event) => take(textOfData(event.data)),
    onerror: (error) => {
      throw error;
    },
  });
}

const of = (ask) => Object.fromEntries(Object.keys(paths).map((api) => [api, (model, take) => ask(model, api, take)]));
const clients = {
  "openai (JavaScript)": {
    chat: (model, take) => each(openai.chat.completions.create({ model, messages, stream: true }), take),
    completions: (model, take) => each(openai.completions.create({ model, prompt: "hello", stream: true }), take),
    responses: (model, take) => each(openai.responses.create({ model, input: "hello", stream: true }), take),
  },
  "@anthropic-ai/sdk": {
    anthropic: (model, take) =>
      each(anthropic.messages.create({ model, max_tokens: 9, messages, stream: true }), take),
  },
  "@langchain/core": of(throughLangChain),
  "@microsoft/fetch-event-source": of(throughFetch),
  eventsource: of(throughEventSource),
  "eventsource-parser": of(throughParser),
};

const models = JSON.parse(readFileSync(0, "utf8"));
const found = {};
for (const [client, asks] of Object.entries(clients)) {
  found[client] = {};
  for (const [model, api] of Object.entries(models)) {
    if (!asks[api]) continue;
    let text = "";
    let error = "";
    try {
      await asks[api](model, (piece) => (text += piece));
    } catch (raised) {
      const isShown = [Shown, OpenAI.APIError, Anthropic.APIError].some((kind) => raised instanceof kind);
      if (!isShown) text = `FAILS after ${text}`;
      error = isShown ? raised.message : String(raised);
    }
    found[client][model] = [text, error];
  }
}
process.stdout.write(JSON.stringify(found));
