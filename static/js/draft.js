// Drafts: what is drawn and typed is kept in this browser at once and on the server soon after, until it is decided.
// A record is one picture's draft: { id, regions, comment, version, undo }. Without an answer it is sent again for ever;
// a copy in this browser outlives the page. Two pages that change one draft are both shown, and a person chooses.
"use strict";
(function () {
  const root = document.getElementById("review");
  if (!root) return;
  const SOON_MS = 1000, LATEST_MS = 5000, PATIENCE_MS = 10000, KEPT_MS = 30 * 86400000, RETRY_MS = [1000, 2000, 4000, 5000];
  const loopline = window.loopline, records = new Map(), asked = [];
  const csrf = document.querySelector("meta[name=csrf]").content;
  const tab = Array.from(crypto.getRandomValues(new Uint32Array(4)), function (n) { return n.toString(36); }).join("");
  const prefix = "loopline.draft." + root.dataset.person + ".";
  const dialog = document.getElementById("two");

  function content(record) { return { regions: record.regions, comment: record.comment }; }
  function same(a, b) { return JSON.stringify([a.regions, a.comment]) === JSON.stringify([b.regions, b.comment]); }

  // ---- the copy in this browser: per person, picture and page
  function keep(record) {
    const copy = Object.assign(content(record), { version: record.version, at: Date.now() });
    try { localStorage.setItem(prefix + record.id + "." + tab, JSON.stringify(copy)); } catch (_full) { /* the server's copy remains */ }
  }
  function copies(id) { // newest first
    const found = [];
    for (let n = 0; n < localStorage.length; n++) {
      const key = localStorage.key(n);
      if (key.startsWith(prefix + id + ".")) found.push(Object.assign({ key: key }, JSON.parse(localStorage.getItem(key))));
    }
    return found.sort(function (a, b) { return b.at - a.at; });
  }
  for (let n = localStorage.length - 1; n >= 0; n--) { // nobody came back for it
    const key = localStorage.key(n);
    if (key.startsWith(prefix) && JSON.parse(localStorage.getItem(key)).at < Date.now() - KEPT_MS) localStorage.removeItem(key);
  }
  function drop(record) {
    [prefix + record.id + "." + tab].concat(record.restored || []).forEach(function (key) { localStorage.removeItem(key); });
    record.restored = [];
  }

  // ---- opening
  function take(record, told) { record.regions = told.regions; record.comment = told.comment; record.version = told.version; }
  function open(id, told, size) {
    let record = records.get(id);
    if (record) {
      if (!record.dirty && !record.sending && told.version > record.version) { take(record, told); record.undo = []; }
      return record;
    }
    record = { id: id, size: size, undo: [], dirty: false, sending: false, since: 0, tries: 0 };
    take(record, told);
    records.set(id, record);
    const copy = copies(id)[0];
    if (!copy) {
      if (told.saved && !unsaved()) loopline.sign("draft", "saved", told.saved);
      return record;
    }
    record.restored = [copy.key];
    if (same(copy, told)) drop(record);
    else if (copy.version === told.version || !told.version) { take(record, copy); touch(record); }
    else { const mine = Object.assign({}, copy); take(record, mine); changed(record, told); }
    return record;
  }

  // ---- saving
  function touch(record) {
    const now = Date.now();
    if (!record.dirty) record.since = now;
    record.dirty = true;
    record.final = false;
    keep(record);
    if (record.tries) return; // an attempt is due anyway
    loopline.sign("draft", "saving");
    plan(record, Math.min(SOON_MS, Math.max(0, record.since + LATEST_MS - now)));
  }
  function plan(record, wait) {
    clearTimeout(record.timer);
    record.timer = setTimeout(function () { send(record); }, wait);
  }
  function send(record, leaving) {
    clearTimeout(record.timer);
    if (!record.dirty || record.sending || record.deciding || record.asking) return;
    const body = new FormData(), sent = content(record);
    body.set("regions", JSON.stringify(sent.regions));
    body.set("comment", sent.comment);
    body.set("version", record.version);
    body.set("tab", tab);
    record.sending = true;
    record.dirty = false;
    const options = { method: "POST", body: body, headers: { Accept: "application/json", "X-CSRFToken": csrf } };
    if (leaving) options.keepalive = true; else options.signal = AbortSignal.timeout(PATIENCE_MS);
    fetch(root.dataset.base + record.id + "/draft", options).then(function (answer) {
      if (answer.ok) return answer.json().then(function (told) { saved(record, told); });
      if (answer.status === 409 || answer.status === 403 || answer.status === 404) {
        return answer.json().catch(function () { return {}; }).then(function (told) { refused(record, told); });
      }
      throw new Error(String(answer.status));
    }).catch(function () { failed(record); });
  }
  function saved(record, told) {
    record.sending = false;
    record.tries = 0;
    record.version = told.version;
    if (record.dirty) { keep(record); touch(record); return; }
    drop(record);
    loopline.sign("draft", "saved", told.saved);
  }
  function failed(record) {
    record.sending = false;
    record.dirty = true;
    if (record.deciding) return; // the decision carries it
    record.tries += 1;
    loopline.sign("draft", "failed");
    plan(record, RETRY_MS[Math.min(record.tries, RETRY_MS.length) - 1]);
  }
  function refused(record, told) {
    record.sending = false;
    record.tries = 0;
    if (record.deciding || !records.has(record.id)) return; // decided in the meantime: nothing to keep
    if (told.standing) { record.dirty = true; changed(record, told.standing); return; }
    record.final = true; // the copy in this browser stays
    loopline.sign("draft", "refused");
    document.getElementById("refusal").textContent = told.sentence || "";
  }
  function sendAll(leaving) { records.forEach(function (record) { send(record, leaving === true); }); }
  function unsaved() { return Array.from(records.values()).some(function (record) { return !record.deciding && (record.dirty || record.sending || record.asking); }); }

  // ---- two pages: both are shown, one is chosen
  function changed(record, standing) {
    record.asking = true;
    keep(record);
    loopline.sign("draft", "refused");
    asked.push({ record: record, standing: standing });
    if (asked.length === 1) ask();
  }
  function fill(side, record, shown) {
    const holder = dialog.querySelector("[data-side=" + side + "]"), lines = loopline.shapes.sheet(record.size);
    holder.querySelector("img").src = root.dataset.base + record.id + "/picture?size=thumb";
    shown.regions.forEach(function (shape) { loopline.shapes.put(lines, loopline.shapes.corners(shape), "dec"); });
    const old = holder.querySelector("svg");
    if (old) old.replaceWith(lines); else holder.querySelector(".two-pic").append(lines);
    holder.querySelector(".two-n").textContent = shown.regions.length;
    holder.querySelector(".two-c").textContent = shown.comment || "–";
    if (shown.saved) holder.querySelector(".two-at").textContent = shown.saved;
  }
  function ask() {
    const first = asked[0];
    fill("mine", first.record, content(first.record));
    fill("standing", first.record, first.standing);
    if (!dialog.open) dialog.showModal();
  }
  dialog.addEventListener("cancel", function (event) { event.preventDefault(); }); // one of them must be chosen
  dialog.addEventListener("click", function (event) {
    const button = event.target.closest("[data-keep]");
    if (!button) return;
    const first = asked.shift(), record = first.record;
    dialog.close();
    record.asking = false;
    record.version = first.standing.version;
    if (button.dataset.keep === "mine") touch(record);
    else {
      take(record, first.standing);
      record.undo = [];
      record.dirty = false;
      drop(record);
      loopline.sign("draft", "saved", first.standing.saved);
    }
    document.dispatchEvent(new CustomEvent("loopline:draft", { detail: record }));
    if (asked.length) ask();
  });

  // ---- deciding and leaving
  function deciding(id) {
    const record = records.get(id);
    if (!record) return;
    record.deciding = true;
    clearTimeout(record.timer);
    if (!unsaved()) loopline.sign("draft", ""); // the decision's own state says it all
  }
  function decided(id) { // the server has forgotten its draft, too
    const record = records.get(id);
    if (!record) return;
    records.delete(id);
    copies(id).forEach(function (copy) { localStorage.removeItem(copy.key); });
  }
  function undecided(id) { const record = records.get(id); if (record && record.deciding) { record.deciding = false; touch(record); } }
  addEventListener("online", function () { sendAll(); });
  document.addEventListener("visibilitychange", function () { if (document.hidden) sendAll(true); });
  addEventListener("beforeunload", function (event) {
    if (!unsaved()) return;
    sendAll(true);
    event.preventDefault();
  });
  loopline.draft = { open: open, touch: touch, deciding: deciding, decided: decided, undecided: undecided };
})();
