// The frame of every page: theme without reload, menus, dialogs, the plant clock, buttons that wait for a live page.
"use strict";
(function () {
  const root = document.documentElement, loopline = window.loopline = window.loopline || {};

  // Keys. `letter` is the key's sign in the Latin alphabet, or its name, also while a Korean input method is on: that
  // one turns letters into jamo, or hides every key behind "Process". `act` is what this person's key map makes of it.
  const SIGNS = { Space: "Space", Enter: "Enter", BracketLeft: "[{", BracketRight: "]}", Minus: "-_", Equal: "=+", Comma: ",<", Period: ".>", Slash: "/?", Semicolon: ";:", Quote: "'\"", Backquote: "`~", Backslash: "\\|" };
  const ALIAS = { "=": "+", "_": "-", Backspace: "Delete" }; // for whoever has no other use for them
  const meta = document.querySelector("meta[name=keys]"), own = meta ? JSON.parse(meta.content) : { keys: {}, fkeys: false };
  const acts = new Map(Object.keys(own.keys).map(function (act) { return [own.keys[act], act]; }));
  loopline.letter = function (event) {
    if (event.key === " ") return "Space";
    if (/^[!-~]$/.test(event.key)) return event.key.toLowerCase();
    if (event.key.length > 1 && event.key !== "Process" && event.key !== "Unidentified") return event.key;
    if (/^(Key|Digit)/.test(event.code)) return event.code.replace(/^(Key|Digit)/, "").toLowerCase();
    const sign = SIGNS[event.code];
    return sign ? (sign.length === 2 ? sign[event.shiftKey ? 1 : 0] : sign) : event.key;
  };
  loopline.act = function (event) {
    const key = loopline.letter(event);
    return acts.get(key) || acts.get(ALIAS[key]) || "";
  };
  loopline.fkeys = own.fkeys;

  // Theme: the server renders it into <html>, so nothing flashes; a click only changes it in place and tells the server.
  document.addEventListener("submit", function (event) {
    const form = event.target.closest("[data-themes]");
    if (!form || !event.submitter) return;
    event.preventDefault();
    root.dataset.theme = event.submitter.value;
    form.querySelectorAll("button").forEach(function (button) {
      button.setAttribute("aria-pressed", String(button === event.submitter));
    });
    const body = new FormData(form);
    body.set("theme", event.submitter.value);
    fetch(form.action, { method: "POST", body: body, redirect: "manual" });
  });

  // Menus of the bar close on a click elsewhere and on Escape; dialogs open by name.
  document.addEventListener("click", function (event) {
    document.querySelectorAll(".bar details[open]").forEach(function (menu) {
      if (!menu.contains(event.target)) menu.open = false;
    });
    const opener = event.target.closest("[data-dialog]");
    if (opener && opener.getAttribute("aria-disabled") !== "true") document.getElementById(opener.dataset.dialog).showModal();
    if (event.target.closest("[data-close]")) event.target.closest("dialog").close();
  });
  document.addEventListener("keydown", function (event) {
    if (event.key === "Escape") document.querySelectorAll(".bar details[open]").forEach(function (menu) { menu.open = false; });
  });

  // A key cap on a link does what the link does; the review has keys of its own.
  document.addEventListener("keydown", function (event) {
    if (event.ctrlKey || event.metaKey || event.altKey || document.getElementById("review")) return;
    if (event.target.closest("input, textarea, select") || document.querySelector("dialog[open]")) return;
    const link = Array.from(document.querySelectorAll("a[data-key]")).find(function (each) { return each.dataset.key === loopline.letter(event); });
    if (link) link.click();
  });

  // A disabled button stays reachable, so that its reason can be read; it only does nothing.
  function blocked(element) {
    if (!element) return false;
    return element.getAttribute("aria-disabled") === "true" || (element.hasAttribute("data-needs-live") && root.classList.contains("stale"));
  }
  document.addEventListener("click", function (event) {
    if (blocked(event.target.closest("button, a"))) { event.preventDefault(); event.stopImmediatePropagation(); }
  }, true);
  document.addEventListener("submit", function (event) {
    if (blocked(event.submitter || event.target.querySelector("[type=submit]"))) { event.preventDefault(); event.stopImmediatePropagation(); }
  }, true);

  // Plant time, in the plant's zone, whatever the PC's own is set to.
  document.querySelectorAll("time[data-clock]").forEach(function (element) {
    const served = Date.parse(element.dataset.now || "") || Date.now();
    const ahead = served - Date.now();
    const format = new Intl.DateTimeFormat("sv-SE", { timeZone: element.dataset.clock, dateStyle: "short", timeStyle: "medium" });
    setInterval(function () { element.textContent = format.format(new Date(Date.now() + ahead)); }, 1000);
  });
})();
