// Review by keyboard. The next picture is fetched, decoded and its panel ready before the key is pressed; a decision is
// shown at once and saved behind it, one after the other. Without this script the same form posts and reloads.
"use strict";
(function () {
  const root = document.getElementById("review"), rail = document.getElementById("rail");
  if (!root) return;
  const AHEAD = 5, RETRY_MS = [500, 1000, 2000, 4000, 8000];
  const loopline = window.loopline, refusal = document.getElementById("refusal"), draw = loopline.draw, draft = loopline.draft;
  const csrf = document.querySelector("meta[name=csrf]").content;
  const ready = new Map();  // capture id -> Promise of { html, image }
  const queue = [];         // acts not yet saved, in order
  let busy = false, armed = false, again = 0;

  // ---- fetching ahead
  function url(id, verb) { return root.dataset.base + id + "/" + verb + location.search; }
  function fetchAhead(id) {
    if (ready.has(id)) return ready.get(id);
    const promise = fetch(url(id, "work"), { headers: { "HX-Request": "true" } }).then(function (answer) {
      if (!answer.ok) throw new Error(String(answer.status));
      return answer.text();
    }).then(function (html) {
      const holder = document.createElement("template");
      holder.innerHTML = html.trim();
      const form = holder.content.querySelector("#work");
      const image = new Image();
      image.src = form.querySelector(".pan img").getAttribute("src");
      return image.decode().catch(function () { /* the canvas says that it cannot be shown */ }).then(function () {
        return { form: form, image: image.naturalWidth ? image : null };
      });
    });
    ready.set(id, promise);
    promise.then(function (found) { promise.found = found; tellReady(); }, function () { ready.delete(id); });
    return promise;
  }
  function tellReady() {
    const next = neighbour(1), at = next && ready.get(next.dataset.id);
    document.getElementById("ready").textContent = at && at.found ? root.dataset.ready : "";
  }

  // ---- moving
  function work() { return document.getElementById("work"); }
  function currentId() { return work() ? work().dataset.id : null; }
  function item(id) { return document.getElementById("r-" + id); }
  function neighbour(step) {
    let at = item(currentId());
    do { at = at && (step > 0 ? at.nextElementSibling : at.previousElementSibling); } while (at && step > 0 && at.dataset.done && !at.dataset.show);
    return at;
  }
  function mark() {
    rail.querySelectorAll(".th").forEach(function (link) {
      const on = link.parentElement.dataset.id === currentId();
      link.classList.toggle("cur", on);
      if (on) { link.setAttribute("aria-current", "true"); link.scrollIntoView({ block: "center" }); } else link.removeAttribute("aria-current");
    });
    let at = item(currentId());
    for (let n = 0; n < AHEAD && (at = at && at.nextElementSibling); n++) if (!at.dataset.done) fetchAhead(at.dataset.id);
    const until = document.getElementById("held-until");
    until.textContent = work().dataset.open && work().dataset.until ? root.dataset.held.replace("{time}", work().dataset.until) : "";
    tellReady();
  }
  function put(found) {
    arm(false);
    work().replaceWith(found.form);
    loopline.picture(found.image);
    mark();
  }
  function goTo(id, began) {
    const promise = fetchAhead(id);
    ready.delete(id); // shown once: a later visit reads it again
    function done(found) {
      put(found);
      requestAnimationFrame(function () { setTimeout(function () { performance.measure("next-picture", { start: began, end: performance.now() }); }, 0); });
    }
    if (promise.found) done(promise.found);
    else promise.then(done, function () { location.search = "?line=" + root.dataset.line + "&at=" + id; });
  }
  function move(step) {
    draw.settle();
    const next = neighbour(step);
    if (next) { if (next.dataset.done) next.dataset.show = "1"; goTo(next.dataset.id, performance.now()); return true; }
    return false;
  }

  // ---- saving
  function say(state, words) { loopline.sign("acts", state, words); }
  function send(act) {
    queue.push(act);
    say("saving");
    if (!busy) next();
  }
  function next() {
    const act = queue[0];
    if (!act) { busy = false; return; }
    busy = true;
    act.body.set("known", Array.from(rail.children, function (row) { return row.dataset.id; }).join(",")); // these need not come again
    fetch(act.url, { method: "POST", body: act.body, headers: { Accept: "application/json", "X-CSRFToken": csrf } }).then(function (answer) {
      if (answer.status === 401) { location.reload(); return null; }
      if (answer.status >= 400 && answer.status < 500 && answer.status !== 408 && answer.status !== 429) { // final
        return answer.json().catch(function () { return {}; }).then(function (told) { queue.shift(); refused(act, told.sentence || ""); next(); });
      }
      if (!answer.ok) throw new Error(String(answer.status));
      return answer.json().then(function (told) {
        queue.shift();
        if (!queue.length) say("saved", told.saved);
        act.done(told);
        next();
      });
    }).catch(function () {
      act.tries = (act.tries || 0) + 1;
      say("failed");
      again = setTimeout(next, RETRY_MS[Math.min(act.tries, RETRY_MS.length) - 1]);
    });
  }
  addEventListener("online", function () { if (queue.length && queue[0].tries) { clearTimeout(again); next(); } });
  function refused(act, sentence) {
    say("refused");
    refusal.textContent = sentence;
    if (act.id) draft.undecided(act.id);
    const at = act.id && item(act.id);
    if (at) { at.querySelector(".th").classList.add("failed"); delete at.dataset.done; }
    if (act.waits) goTo(currentId(), performance.now());
  }
  function refill(told) {
    document.getElementById("left").textContent = Number(told.left).toLocaleString("en");
    told.rail.forEach(function (row) {
      if (item(row.id)) return;
      const holder = document.createElement("template");
      holder.innerHTML = row.html.trim();
      rail.append(holder.content);
    });
    while (rail.children.length > 60) rail.firstElementChild.remove();
    mark();
  }
  function decided(id, choice) {
    const at = item(id);
    if (!at) return;
    at.dataset.done = "1";
    const link = at.querySelector(".th"), old = link.querySelector(".mark");
    link.classList.add("done");
    const verdict = choice ? choice.slice(0, 2) : "";
    if (verdict && old) {
      const kind = verdict.toLowerCase();
      at.dataset.before = old.outerHTML;
      old.className = "mark " + kind;
      old.innerHTML = '<svg class="g" aria-hidden="true"><use href="#g-' + kind + '"/></svg>' + verdict;
    }
  }

  // ---- acting
  function act(button) {
    const form = work();
    if (!form.dataset.open || button.getAttribute("aria-disabled") === "true") return;
    const id = form.dataset.id, number = button.value.startsWith("NG:") ? Number(button.value.slice(3)) : 0;
    if (button.classList.contains("cls") && draw.selected()) { draw.classify(number); return; }
    draw.settle();
    refusal.textContent = "";
    if (button.value === "OK" && draw.count()) { refusal.textContent = root.dataset.drawn; return; }
    if (button.value === "NG" && !draw.count()) { arm(true); return; } // several classes: the class key follows
    const body = new FormData(form);
    if (button.name) { body.set(button.name, button.value); draft.deciding(id); }
    if (number) draw.dip(number);
    form.dataset.open = "";
    decided(id, button.name ? button.value : "");
    send({ id: id, url: button.getAttribute("formaction") || form.getAttribute("action"), body: body, waits: false, done: function (told) { if (button.name) draft.decided(id); refill(told); } });
    if (!move(1)) atTheEnd();
  }
  function atTheEnd() { // nothing behind this one: wait for what the server still has
    const last = queue[queue.length - 1];
    if (!last) return;
    const done = last.done;
    last.done = function (told) { done(told); if (!move(1)) location.search = location.search.replace(/([?&])at=[^&]*/, "$1"); };
  }
  function undo() {
    refusal.textContent = "";
    const body = new FormData();
    body.set("line", root.dataset.line);
    send({
      url: root.dataset.undo + location.search, body: body, id: null,
      done: function (told) {
        const row = told.rail.find(function (entry) { return entry.id === told.at; }), old = item(told.at);
        const holder = document.createElement("template");
        holder.innerHTML = row.html.trim();
        const fresh = holder.content.firstElementChild;
        if (old) old.replaceWith(fresh); else { const here = item(currentId()); if (here) here.before(fresh); else rail.prepend(fresh); }
        ready.delete(told.at);
        refill(told);
        goTo(told.at, performance.now());
      },
    });
  }
  function arm(on) {
    armed = on;
    document.querySelectorAll(".vb.ng, .cls").forEach(function (button) { button.classList.toggle("armed", on); });
  }

  document.addEventListener("submit", function (event) {
    if (event.target.id === "work" && event.submitter) { event.preventDefault(); act(event.submitter); }
    if (event.target.classList.contains("undo-f")) { event.preventDefault(); if (!draw.undo()) undo(); }
  });
  document.addEventListener("click", function (event) {
    const link = event.target.closest(".rail .th");
    if (link) { event.preventDefault(); const row = link.parentElement; if (row.dataset.done) row.dataset.show = "1"; goTo(row.dataset.id, performance.now()); }
  });
  function press(selector, event) {
    const button = work() && work().querySelector(selector);
    event.preventDefault();
    if (button && !event.repeat) act(button);
  }

  document.addEventListener("keydown", function (event) {
    const plain = !event.ctrlKey && !event.metaKey && !event.altKey && !event.shiftKey;
    if (loopline.fkeys && plain && (event.key === "F5" || event.key === "F8")) { // never reloads here, also not from the comment
      if (document.querySelector("dialog[open]")) event.preventDefault();
      else press(event.key === "F5" ? ".vb.ok" : ".vb.ng", event);
      return;
    }
    const typing = event.target.closest("input, textarea, select");
    if (event.isComposing) return; // Enter and Esc end a Korean syllable first
    if (event.key === "Escape" && typing) { typing.blur(); return; }
    if (event.key === "Enter" && typing) { typing.blur(); event.preventDefault(); return; } // leaves the comment; decides nothing
    if (typing || document.querySelector("dialog[open]")) return;
    if ((event.ctrlKey || event.metaKey) && loopline.letter(event) === "z") { event.preventDefault(); if (!draw.undo()) undo(); return; } // drawing steps first
    if (event.ctrlKey || event.metaKey || event.altKey || !work()) return;
    const wanted = loopline.letter(event), what = loopline.act(event);
    if (what === "next" || what === "previous") { event.preventDefault(); move(what === "next" ? 1 : -1); return; }
    if (wanted === "Escape") { arm(false); return; }
    if (what === "comment") { event.preventDefault(); document.getElementById("comment").focus(); return; }
    if (what === "grid") { document.getElementById("to-grid").click(); return; }
    if (what === "similar") { work().querySelector("#similar").click(); return; }
    if (wanted === "?") { document.getElementById("keys").showModal(); return; }
    const button = Array.from(work().querySelectorAll(".judge [data-key]")).find(function (entry) { return entry.dataset.key === wanted; });
    if (!button || event.repeat) return;
    if (wanted === "Enter" && event.target.closest("a, summary, .bar button, .tools button")) return; // a focused link keeps its Enter
    event.preventDefault();
    act(button);
  });
  addEventListener("beforeunload", function (event) { if (queue.length) event.preventDefault(); });
  if (work()) { mark(); }
})();
