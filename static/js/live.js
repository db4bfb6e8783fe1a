// Live pages. The socket says which topics changed, never what; elements with data-topic re-read their own partial.
// An element needs an id, and hx-get with hx-trigger="loopline:changed" (or its own listener for that event).
"use strict";
(function () {
  const strip = document.getElementById("live");
  if (!strip) return;
  const root = document.documentElement;
  const known = new Map();     // topic -> newest version seen
  const loading = new Set();   // ids of elements whose partial is on its way
  const dirty = new Set();     // ids of elements that changed again meanwhile, or that someone is typing in
  const GRACE_MS = 5000, CHECK_MS = 30000, PING_MS = 15000, SILENT_MS = 40000;
  let socket = null, heard = 0, tries = 0, since = Date.now(), ended = false;

  // ---- what is shown
  function show(state) {
    const late = Math.round((Date.now() - since) / 1000);
    let words = strip.dataset.live, glyph = "ok";
    if (state === "late") { words = strip.dataset.late.replace("{n}", late); glyph = "rv"; }
    if (state === "off") { words = strip.dataset.off.replace("{time}", new Date(since).toTimeString().slice(0, 8)); glyph = "ng"; }
    strip.className = "live" + (state === "live" ? "" : " " + state);
    if (strip.lastElementChild.textContent !== words) strip.lastElementChild.textContent = words;
    strip.querySelector("use").setAttribute("href", "#g-" + glyph);
    root.classList.toggle("stale", state !== "live");
    strip.title = state === "live" ? "" : strip.dataset.why;
  }
  function tell() {
    if (socket && socket.readyState === WebSocket.OPEN && Date.now() - heard < SILENT_MS) { since = Date.now(); show("live"); }
    else show(Date.now() - since < GRACE_MS ? "late" : "off");
  }

  // ---- elements and their topics
  function topicsOf(element) { return element.dataset.topic.split(/\s+/).filter(Boolean); }
  function elements() { return Array.from(document.querySelectorAll("[data-topic]")); }
  function topics() { return Array.from(new Set(elements().flatMap(topicsOf))); }
  function busy(element) {
    const at = document.activeElement;
    return element.querySelector("dialog[open]") || (element.contains(at) && at.matches("input, textarea, select"));
  }
  function refresh(element) {
    if (loading.has(element.id) || busy(element)) { dirty.add(element.id); return; }
    dirty.delete(element.id);
    element.dispatchEvent(new CustomEvent("loopline:changed", { bubbles: false }));
  }
  function changed(topic, version) {
    const before = known.get(topic);
    if (before !== undefined && before >= version) return;
    known.set(topic, version);
    elements().forEach(function (element) { if (topicsOf(element).includes(topic)) refresh(element); });
  }
  function settle(id) {
    loading.delete(id);
    const element = document.getElementById(id);
    if (element && dirty.has(id)) refresh(element);
  }
  document.addEventListener("htmx:beforeRequest", function (event) {
    const element = event.detail.elt;
    if (element.dataset && element.dataset.topic) loading.add(element.id);
  });
  document.addEventListener("htmx:afterRequest", function (event) {
    const element = event.detail.requestConfig && event.detail.requestConfig.elt;
    if (element && element.dataset && element.dataset.topic) setTimeout(settle, 60, element.id); // after the swap
  });
  document.addEventListener("htmx:afterSettle", subscribe);
  document.addEventListener("focusout", function () {
    setTimeout(function () { Array.from(dirty).forEach(function (id) { if (!loading.has(id)) settle(id); }); }, 0);
  });
  document.addEventListener("close", function () { Array.from(dirty).forEach(settle); }, true);

  // ---- the socket
  let asked = "";
  function subscribe() {
    const list = topics(), key = list.join(" ");
    if (!list.length || !socket || socket.readyState !== WebSocket.OPEN || key === asked) return;
    asked = key;
    socket.send(JSON.stringify({ subscribe: list }));
  }
  function connect() {
    asked = "";
    socket = new WebSocket((location.protocol === "https:" ? "wss://" : "ws://") + location.host + "/live/");
    socket.onopen = function () { tries = 0; heard = Date.now(); subscribe(); tell(); };
    socket.onmessage = function (event) {
      const message = JSON.parse(event.data);
      heard = Date.now();
      if (message.topic) changed(message.topic, message.version);
      if ("ping" in message) socket.send(JSON.stringify({ pong: message.ping }));
    };
    socket.onclose = function (event) {
      tell();
      if (event.code === 4401) { ended = true; since = 0; location.reload(); return; } // signed out: the server shows the sign-in page
      if (!ended) setTimeout(connect, Math.min(10000, 250 * 2 ** tries++) * (0.5 + Math.random()));
    };
  }
  addEventListener("pagehide", function () { ended = true; });
  addEventListener("pageshow", function (event) { if (event.persisted) location.reload(); });

  // ---- the check that needs no socket: on focus and every 30 s
  function check() {
    const list = topics();
    if (!list.length || document.hidden) return;
    fetch(strip.dataset.url + "?topics=" + encodeURIComponent(list.join(" ")), { headers: { Accept: "application/json" } })
      .then(function (answer) { return answer.ok ? answer.json() : {}; })
      .then(function (versions) { Object.entries(versions).forEach(function (entry) { changed(entry[0], entry[1]); }); })
      .catch(function () { /* the strip already says that we are disconnected */ });
  }
  addEventListener("focus", check);
  document.addEventListener("visibilitychange", check);
  setInterval(check, CHECK_MS);
  setInterval(function () {
    if (socket && socket.readyState === WebSocket.OPEN) socket.send(JSON.stringify({ ping: Date.now() }));
  }, PING_MS);
  setInterval(function () {
    if (socket && socket.readyState === WebSocket.OPEN && Date.now() - heard > SILENT_MS) socket.close();
    tell();
  }, 1000);
  window.loopline = Object.assign(window.loopline || {}, { known: known });
  connect();
})();
