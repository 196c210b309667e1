"use strict";
// Keeps the page fresh: asks for it anew after each event of the stream and every few seconds, and puts the parts
// that have changed in place of the old ones. Where a form has the focus, its part stays until the focus leaves.
(() => {
  const STALE_S = 5, IDLE_MS = 10000, BUSY_MS = 2000, LEAST_MS = 500, AGAIN_MS = 1200;
  let age = Number(document.documentElement.dataset.age) || 0;
  let heard = performance.now();
  let asked = 0, timer = 0, busy = false, again = false;
  const lost = document.getElementById("lost");

  const source = new EventSource("/api/v1/stream");

  const showAge = () => {
    const seconds = age + (performance.now() - heard) / 1000;
    const unknown = document.documentElement.dataset.state === "unknown";
    const quiet = (performance.now() - heard) / 1000 > STALE_S + IDLE_MS / 1000;
    if (unknown) return;
    lost.hidden = !(age > STALE_S || quiet);
    if (!lost.hidden) lost.textContent = `disconnected ${words(seconds)}`;
  };
  const words = (s) => s < 120 ? `${Math.floor(s)} s` : s < 7200 ? `${Math.floor(s / 60)} min` : `${Math.floor(s / 3600)} h`;

  const isEdited = (part) => {
    const active = document.activeElement;
    return part.contains(active) && active.matches("select, input, textarea");
  };
  const put = (fresh) => {
    for (const name of ["age", "state"]) document.documentElement.dataset[name] = fresh.documentElement.dataset[name];
    document.title = fresh.title;
    const heading = document.querySelector("h1");
    if (heading.innerHTML !== fresh.querySelector("h1").innerHTML) heading.replaceWith(fresh.querySelector("h1"));
    const parts = [...fresh.querySelectorAll("[data-part]")];
    const names = parts.map((part) => part.dataset.part);
    const old = [...document.querySelectorAll("[data-part]")];
    if (names.join() !== old.map((part) => part.dataset.part).join()) return document.getElementById("prompt")?.value ? undefined : location.reload();
    parts.forEach((part, i) => {
      for (const open of old[i].querySelectorAll("details[open]")) {
        const same = [...part.querySelectorAll("details")].find((one) => one.dataset.keep === open.dataset.keep);
        if (same) same.open = true;
      }
      if (old[i].innerHTML === part.innerHTML || isEdited(old[i])) return;
      const active = document.activeElement;
      const label = old[i].contains(active) ? active.getAttribute("aria-label") || active.textContent : "";
      const log = old[i].querySelector("pre"), down = log && log.scrollHeight - log.scrollTop - log.clientHeight < 8;
      old[i].replaceWith(part);
      if (down) { const pre = part.querySelector("pre"); if (pre) pre.scrollTop = pre.scrollHeight; }
      if (label) {
        const again = [...part.querySelectorAll("a, button, summary, [tabindex]")]
          .find((one) => (one.getAttribute("aria-label") || one.textContent) === label);
        if (again) again.focus({ preventScroll: true });
      }
    });
  };

  const ask = async () => {
    clearTimeout(timer);
    if (busy) return;
    busy = true;
    asked = performance.now();
    try {
      const answer = await fetch(location.href, { headers: { Accept: "text/html" }, cache: "no-store" });
      if (answer.ok) {
        put(new DOMParser().parseFromString(await answer.text(), "text/html"));
        age = Number(document.documentElement.dataset.age) || 0;
        heard = performance.now();
      }
    } catch { /* told by its age */ }
    busy = false;
    showAge();
    const isHurried = document.querySelector(".operation, [data-live]") || !lost.hidden || source.readyState !== EventSource.OPEN;
    timer = setTimeout(ask, again ? AGAIN_MS : document.hidden ? 4 * IDLE_MS : isHurried ? BUSY_MS : IDLE_MS);
    again = false;
  };
  // The server may have an answer of up to a second ago, so the page is asked for twice.
  const soon = () => {
    again = true;
    clearTimeout(timer);
    timer = setTimeout(ask, Math.max(0, asked + LEAST_MS - performance.now()));
  };

  source.onmessage = soon;
  for (const name of ["status", "operation", "recorded", "measured", "alert", "lost"]) source.addEventListener(name, soon);
  setInterval(showAge, 1000);
  document.addEventListener("visibilitychange", () => { if (!document.hidden) soon(); });
  timer = setTimeout(ask, BUSY_MS);
  const log = document.querySelector(".log pre");
  if (log) log.scrollTop = log.scrollHeight;

  const trial = document.querySelector("form[data-ask]");
  if (trial) {
    const shown = document.getElementById("answer"), stop = trial.querySelector("[data-stop]"), send = trial.querySelector("button.main");
    let asking = null;
    stop.addEventListener("click", () => asking && asking.abort());
    trial.addEventListener("submit", async (event) => {
      event.preventDefault();
      asking = new AbortController();
      send.disabled = true; stop.hidden = false; shown.hidden = false;
      shown.textContent = ""; shown.setAttribute("aria-busy", "true");
      try {
        const answer = await fetch(trial.action, {
          method: "POST", body: new URLSearchParams(new FormData(trial)), headers: { Accept: "text/plain" },
          cache: "no-store", signal: asking.signal,
        });
        const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
        for (;;) {
          const { done, value } = await reader.read();
          if (done) break;
          const down = shown.scrollHeight - shown.scrollTop - shown.clientHeight < 8;
          shown.append(value);
          if (down) shown.scrollTop = shown.scrollHeight;
        }
      } catch { shown.append(asking.signal.aborted ? "\n[stopped]" : "\n[no answer]"); }
      send.disabled = false; stop.hidden = true; shown.removeAttribute("aria-busy");
    });
  }

  const copy = document.querySelector("[data-copy]");
  if (copy && navigator.clipboard) {
    copy.hidden = false;
    copy.addEventListener("click", async () => {
      const told = document.querySelector("[data-copied]");
      try {
        const answer = await fetch(copy.dataset.copy, { cache: "no-store" });
        await navigator.clipboard.writeText(await answer.text());
        told.textContent = "Copied.";
      } catch { told.textContent = "Not copied: open status.md."; }
    });
  }
})();
