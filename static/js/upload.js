// Sends an archive with its progress on the page; the server looks at it before anything is imported.
"use strict";
(function () {
  const form = document.getElementById("upload");
  if (!form) return;
  const file = form.querySelector("[type=file]"), send = form.querySelector("[type=submit]");
  const stop = document.getElementById("upload-stop"), failed = document.getElementById("upload-failed");
  const bar = document.getElementById("upload-bar"), meter = bar.querySelector("progress"), words = bar.querySelector("[role=status]");
  let running = null;

  function megabytes(bytes) { return (bytes / 1e6).toFixed(1) + " MB"; }
  function fail(sentence) {
    done();
    failed.querySelector("p").textContent = sentence;
    failed.hidden = false;
    file.focus();
  }
  function done() { running = null; bar.hidden = stop.hidden = true; send.disabled = file.disabled = false; }
  function answered(request) {
    let said = {};
    try { said = JSON.parse(request.responseText); } catch (error) { /* an error page: the sentence below says enough */ }
    if (request.status === 201) { running = null; location.assign(said.url); return; }
    if (request.status === 401) { running = null; location.reload(); return; } // signed out: the whole page signs in
    fail(said.sentence || form.dataset.lost);
  }

  form.addEventListener("submit", function (event) {
    event.preventDefault();
    const chosen = file.files[0];
    failed.hidden = true;
    if (!chosen || running) return;
    if (chosen.size > Number(form.dataset.limit)) { fail(form.dataset.tooLarge); return; }
    const request = running = new XMLHttpRequest();
    const query = new URLSearchParams({ in: form.elements.in.value, name: chosen.name });
    request.open("POST", form.dataset.url + "?" + query);
    request.setRequestHeader("X-CSRFToken", document.querySelector("meta[name=csrf]").content);
    request.setRequestHeader("Accept", "application/json");
    request.setRequestHeader("Content-Type", "application/octet-stream");
    let said = 0;
    request.upload.onprogress = function (step) {
      meter.value = step.loaded / step.total;
      if (Date.now() - said < 250 && step.loaded < step.total) return;
      said = Date.now();
      words.textContent = form.dataset.progress.replace("{done}", megabytes(step.loaded)).replace("{of}", megabytes(step.total)).replace("{share}", Math.floor(100 * step.loaded / step.total));
    };
    request.upload.onload = function () { words.textContent = form.dataset.checking; };
    request.onload = function () { answered(request); };
    request.onerror = function () { fail(form.dataset.lost); };
    request.onabort = done;
    meter.value = 0;
    words.textContent = "";
    bar.hidden = stop.hidden = false;
    send.disabled = file.disabled = true;
    stop.focus();
    request.send(chosen);
  });
  stop.addEventListener("click", function () { if (running) running.abort(); file.focus(); });
  addEventListener("beforeunload", function (event) { if (running) event.preventDefault(); });
})();
