/* What a living page does beside fetching its parts: ages that grow, a title and an icon that carry the state, a page
   that greys out when nobody speaks any more, and a button that holds it still. Without htmx the page stays what it is
   and offers to be read again. */
(() => {
  "use strict";
  const SILENT_MS = 15000; // the stream beats every 5 s
  const root = document.documentElement;
  const words = document.getElementById("live-words");
  const pause = document.getElementById("live-pause");
  let heardAt = performance.now(); // or since when we wait for the first word
  let heardOnce = false;
  let told = "";

  const age = (seconds) => {
    const whole = Math.max(0, Math.floor(seconds));
    if (whole < 100) return `${whole} s`;
    const minutes = Math.floor(whole / 60);
    if (minutes < 60) return `${minutes} min`;
    const hours = Math.floor(minutes / 60);
    if (hours < 24) return minutes % 60 ? `${hours} h ${minutes % 60} min` : `${hours} h`;
    return hours % 24 ? `${Math.floor(hours / 24)} d ${hours % 24} h` : `${Math.floor(hours / 24)} d`;
  };

  /* Every age on the page was true when its part was drawn; that moment is kept beside it. */
  const started = new WeakMap();
  const restart = (within) => within.querySelectorAll("[data-age]").forEach((el) => started.set(el, performance.now()));
  const grow = () => {
    const now = performance.now();
    document.querySelectorAll("[data-age]").forEach((el) => {
      if (!started.has(el)) started.set(el, now);
      const text = age(Number(el.dataset.age) + (now - started.get(el)) / 1000);
      if (el.textContent !== text) el.textContent = text;
    });
  };

  const carryState = () => {
    const state = document.querySelector("[data-pagestate]");
    if (!state) return;
    const title = `${state.dataset.title} \u2013 dflash-supervise`;
    if (document.title !== title) document.title = title;
    const icon = document.getElementById("favicon");
    if (icon.getAttribute("href") !== state.dataset.icon) icon.setAttribute("href", state.dataset.icon);
  };

  const say = (live, text) => {
    if (root.dataset.live !== live) root.dataset.live = live;
    if (told !== text) { words.textContent = text; told = text; }
  };

  const look = () => {
    grow();
    if (root.dataset.live === "paused") return;
    const silent = performance.now() - heardAt;
    if (silent > SILENT_MS) say("lost", `no news for ${age(silent / 1000)}: this page is old`);
    else if (heardOnce) say("on", "live");
  };

  const toBottom = (log) => { log.scrollTop = log.scrollHeight; };
  const atBottom = (log) => log.scrollHeight - log.scrollTop - log.clientHeight < 40;

  if (!window.htmx) {
    words.textContent += "; reload for news";
    document.querySelectorAll("[data-log]").forEach(toBottom);
    setInterval(grow, 1000);
    return;
  }

  const heard = () => { heardAt = performance.now(); heardOnce = true; look(); };
  for (const name of ["changed", "link", "beat"]) document.body.addEventListener(name, heard);

  let follow = true;
  document.addEventListener("htmx:before:swap", () => {
    const log = document.querySelector("[data-log]");
    follow = !log || atBottom(log);
  });
  document.addEventListener("htmx:after:swap", (event) => {
    restart(event.target instanceof Element ? event.target : document);
    carryState();
    const log = document.querySelector("[data-log]");
    if (log && follow) toBottom(log);
  });
  document.addEventListener("htmx:before:request", (event) => {
    if (root.dataset.live === "paused" && event.target.matches("[data-part]")) event.preventDefault();
  });

  pause.hidden = false;
  pause.addEventListener("click", () => {
    const paused = root.dataset.live !== "paused";
    pause.setAttribute("aria-pressed", String(paused));
    pause.textContent = paused ? "Resume" : "Pause";
    if (paused) { say("paused", "paused"); return; }
    root.dataset.live = "on";
    heardAt = performance.now();
    look();
    window.htmx.trigger(document.body, "changed");
  });

  document.querySelectorAll("[data-log]").forEach(toBottom);
  restart(document);
  carryState();
  look();
  setInterval(look, 1000);
})();
