// The page of one's own keys: a key is set by pressing it; what it collides with is said at once, before anything is saved.
"use strict";
(function () {
  const form = document.getElementById("own-keys"), loopline = window.loopline;
  if (!form) return;
  const taken = JSON.parse(document.getElementById("class-keys").textContent), caps = JSON.parse(document.getElementById("key-caps").textContent);
  const SIGN = /^[!->@-Z\[-~]$/; // printable, but no "?"
  const fields = Array.from(form.querySelectorAll("[data-cap]"));
  const kept = new Map(); // field -> its key; the field itself shows the cap

  function cap(key) { return caps[key] || (key === "-" ? "−" : key.toUpperCase()); }
  function words(field) { return form.querySelector("label[for='" + field.id + "']").textContent; }
  function say(template, key, other) { return template.replace("{key}", cap(key)).replace("{other}", other); }
  function usable(key) { return key in caps || SIGN.test(key) && !/[0-9]/.test(key); }
  function problem(field) {
    const key = kept.get(field), other = fields.find(function (each) { return each !== field && kept.get(each) === key; });
    if (!usable(key)) return form.dataset.unusable;
    if (other) return say(form.dataset.also, key, words(other));
    return key in taken ? say(form.dataset.class, key, taken[key]) : "";
  }
  function show() {
    let wrong = false;
    fields.forEach(function (field) {
      const found = problem(field);
      field.value = cap(kept.get(field));
      field.closest("li").classList.toggle("bad", Boolean(found));
      field.closest("li").classList.toggle("own", kept.get(field) !== field.dataset.default);
      document.getElementById("p-" + field.name).textContent = found;
      wrong = wrong || Boolean(found);
    });
    document.getElementById("save-keys").setAttribute("aria-disabled", String(wrong));
  }
  fields.forEach(function (field) {
    kept.set(field, field.value);
    field.readOnly = true;
    field.addEventListener("keydown", function (event) {
      if (event.ctrlKey || event.metaKey || event.altKey || /^(Tab|Escape|Shift|Control|Alt|Meta|HangulMode|HanjaMode|CapsLock)$/.test(event.key)) return;
      event.preventDefault();
      kept.set(field, loopline.letter(event));
      show();
    });
  });
  form.addEventListener("formdata", function (event) { // what is sent are the keys, not their caps
    fields.forEach(function (field) { event.formData.set(field.name, kept.get(field)); });
  });
  show();
})();
