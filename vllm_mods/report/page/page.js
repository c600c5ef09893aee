"use strict";
(() => {
  const byId = (id) => document.getElementById(id);
  const data = JSON.parse(byId("data").textContent);
  const table = byId("grid");
  const heads = table.tHead.rows[0].cells;
  const rows = table.tBodies[0].rows;
  const dialog = byId("cell");
  const trees = new Map(data.trees.map(([tree], at) => [tree, at]));
  // How a hunk's place was proven: docs/how-it-decides.md.
  const proofs = {
    "file": "the file is byte for byte the one that the patch was written for",
    "scope": "what is around it is what the patch was written in",
    "order": "the hunks before and behind it leave it one place",
    "stated": "all hunks of the file stand at their stated lines, and proven ones around it",
    "new file": "nothing is there yet",
    "unique": "the only place in the file with this text; nothing else proves it",
  };
  let open = null; // [row, column] of the cell that is open
  let current = null; // the one cell of the grid that Tab reaches

  // --- making elements; text is only ever set as text ---------------------------------------

  function make(name, properties = {}, ...children) {
    const element = Object.assign(document.createElement(name), properties);
    element.append(...children.filter((child) => child !== null));
    return element;
  }

  // What stands between backticks is code.
  function prose(text) {
    const parts = text.split("`");
    if (parts.length % 2 === 0) return [text];
    return parts.map((part, at) => (at % 2 ? make("code", {}, part) : part));
  }

  const cellOf = (row, column) => rows[row].cells[column + 1];
  const shown = (element) => !element.hidden;
  const signed = (number) => (number > 0 ? `+${number}` : `${number}`);
  const plural = (count, noun) => `${count} ${noun}${count === 1 ? "" : "s"}`;

  // --- the grid by keyboard: the ARIA pattern for grids, one stop for Tab --------------------

  function focusable(cell) {
    if (current) current.tabIndex = -1;
    current = cell;
    cell.tabIndex = 0;
  }

  function focusCell(cell) {
    focusable(cell);
    cell.focus();
    const head = heads[cell.cellIndex];
    for (const other of table.querySelectorAll(".here")) other.classList.remove("here");
    head.classList.add("here");
  }

  const visible = () => [
    [...rows].filter(shown).map((row) => row.sectionRowIndex),
    [...heads].slice(1).filter(shown).map((head) => head.cellIndex - 1),
  ];

  function step(list, at, by) {
    return list[Math.min(Math.max(list.indexOf(at) + by, 0), list.length - 1)];
  }

  function move(event) {
    const cell = event.target.closest("td");
    if (!cell || event.altKey || event.metaKey) return;
    const [allRows, allColumns] = visible();
    let row = cell.parentNode.sectionRowIndex;
    let column = cell.cellIndex - 1;
    switch (event.key) {
      case "ArrowLeft": column = step(allColumns, column, -1); break;
      case "ArrowRight": column = step(allColumns, column, 1); break;
      case "ArrowUp": row = step(allRows, row, -1); break;
      case "ArrowDown": row = step(allRows, row, 1); break;
      case "PageUp": row = step(allRows, row, -10); break;
      case "PageDown": row = step(allRows, row, 10); break;
      case "Home": column = allColumns[0]; if (event.ctrlKey) row = allRows[0]; break;
      case "End": column = allColumns.at(-1); if (event.ctrlKey) row = allRows.at(-1); break;
      case "Enter": case " ": visit(row, column); event.preventDefault(); return;
      default: return;
    }
    event.preventDefault();
    focusCell(cellOf(row, column));
  }

  function describe(cell) {
    const entry = data.cells[cell.parentNode.sectionRowIndex][cell.cellIndex - 1];
    if (!entry) return "";
    const [mod] = data.mods[cell.parentNode.sectionRowIndex];
    const [, label] = data.trees[cell.cellIndex - 1];
    const without = (entry.without ?? []).map((patch) => `, without ${patch}`).join("");
    const variant = (entry.variant ? `, variant ${entry.variant}` : "") + without;
    const range = entry.meant ? "" : "; its author does not state this release";
    return `${mod} on ${label}: ${entry.word}${variant}${range}`;
  }

  function read(event) {
    const cell = event.target.closest("td");
    byId("readout").textContent = cell ? describe(cell) : "";
  }

  // --- filters ------------------------------------------------------------------------------

  // What a mod is found by, and what a cell is: each is looked for among its words.
  const hunksOf = (entry) => (entry?.hunks ?? []).map((at) => data.hunks[at]);
  const about = data.mods.map(([name, , { summary = "", package: packages = [], model = [] }]) => ({
    name, package: packages, model, words: [name, summary, ...packages, ...model].join(" ").toLowerCase(),
  }));
  const names = new Set(about.map((one) => one.name));

  function choices(id, values) {
    const found = [...new Set(values)].sort();
    byId(id).append(...found.map((value) => make("option", {}, value)));
    byId(id).parentNode.hidden = !found.length;
  }

  // A mod's whole name is that mod's; the address says what is looked for.
  const wanted = () => new URLSearchParams([...new FormData(byId("filter"))].filter(([, value]) => value));
  function here() {
    const said = wanted();
    if (said.size === 1 && names.has(said.get("mod"))) return address(said.get("mod"));
    return said.size ? `#?${said}` : location.pathname + location.search;
  }

  // What an address looks for: nothing, `#?mod=…`, or a mod alone; null for any other.
  function lookedFor() {
    if (!location.hash || location.hash.startsWith("#?")) return new URLSearchParams(location.hash.slice(2));
    return names.has(hash()) ? new URLSearchParams([["mod", hash()]]) : null;
  }

  function fill(said) {
    for (const field of byId("filter").elements) {
      if (field.type === "checkbox") field.checked = said.getAll(field.name).includes(field.value);
      else if (field.name) field.value = said.get(field.name) ?? "";
    }
    filter();
  }

  function filter() {
    const said = wanted();
    const verdicts = said.getAll("verdict");
    const typed = (said.get("mod") ?? "").trim();
    const labels = data.trees.map(([, label]) => label);
    const last = labels.length - 1;
    const place = (id, none) => (said.has(id) ? labels.indexOf(said.get(id)) : none);
    const ends = [place("from", 0), place("to", last)].sort((a, b) => a - b);
    const chosen = (id, values) => !said.has(id) || values.includes(said.get(id));
    const found = (one) => (names.has(typed) ? one.name === typed : one.words.includes(typed.toLowerCase()))
      && chosen("package", one.package) && chosen("model", one.model);
    const matches = (entry) => entry && (!verdicts.length || verdicts.includes(entry.word))
      && chosen("proof", hunksOf(entry).map((one) => one.proof));
    const inside = (column) => ends[0] <= column && column <= ends[1];
    let cells = 0;
    let count = 0;
    for (let column = 0; column <= last; column++) heads[column + 1].hidden = !inside(column);
    for (const [at, row] of [...rows].entries()) {
      let matching = 0;
      for (const [column, entry] of data.cells[at].entries()) {
        const cell = row.cells[column + 1];
        cell.hidden = !inside(column);
        const match = matches(entry);
        cell.classList.toggle("dim", !match);
        if (match && inside(column)) matching++;
      }
      row.hidden = !matching || !found(about[at]);
      if (!row.hidden) {
        cells += matching;
        count++;
      }
    }
    follow();
    const mine = place("release", -1);
    for (const head of heads) head.classList.toggle("mine", head.cellIndex === mine + 1 && mine >= 0);
    answer(mine);
    if (mine >= 0) bring(mine + 1);
    else if (verdicts.length || said.has("proof")) bring(lastFound());
    byId("status").textContent = `${plural(cells, "cell")} of ${plural(count, "mod")}`;
    if (count && !(shown(current) && shown(current.parentNode))) {
      const [allRows, allColumns] = visible();
      focusable(cellOf(allRows[0], allColumns[0]));
    }
  }

  // What is said of mods beside the grid is shown with their rows; a list of which nothing is left goes.
  function follow() {
    const lists = new Set();
    for (const entry of document.querySelectorAll("#map [data-row]")) {
      entry.hidden = !shown(rows[entry.dataset.row]);
      lists.add(entry.closest(".list"));
    }
    for (const list of lists) {
      const left = list.querySelectorAll("li:not([hidden])").length;
      list.hidden = !left;
      list.querySelector("h2 small").textContent = left;
    }
  }

  const lastFound = () => Math.max(...[...table.querySelectorAll(
    "tbody tr:not([hidden]) td:not([hidden], .dim)")].map((cell) => cell.cellIndex));

  // A column is in sight.
  function bring(column) {
    const [frame, head] = [table.parentNode, heads[column]];
    if (!head) return;
    const right = head.offsetLeft + head.offsetWidth;
    const left = head.offsetLeft - heads[0].offsetWidth;
    if (right > frame.scrollLeft + frame.clientWidth || left < frame.scrollLeft) {
      frame.scrollLeft = right - frame.clientWidth;
    }
  }

  // --- yes or no, and the command -----------------------------------------------------------

  const goesIn = (entry) => ["applies", "moved", "applied"].includes(entry?.word);
  const quoted = (word) => (/^[\w.:/@%+=,-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`);
  const command = (...words) => make("pre", { className: "command", tabIndex: 0 }, words.join(" "));

  // Answers for what is chosen above the grid: a mod, a release, or both.
  function answer(column) {
    const found = [...rows].filter(shown).map((row) => row.sectionRowIndex);
    const [row] = found;
    let told;
    if (found.length === 1 && column >= 0) {
      told = [...verdict(row, column), make("a", { href: address(data.mods[row][0], column) }, "Why, line by line")];
    } else if (found.length === 1) {
      const good = data.trees.flatMap(([, label], at) => (goesIn(data.cells[row][at]) ? [label] : []));
      told = [make("p", {}, make("b", {}, data.mods[row][0]), ` applies to ${good.length} of ${data.trees.length} releases`,
        good.length ? `, the newest ${good.at(-1)}. ` : ". ", "Choose your vLLM for the command.")];
    } else if (column >= 0) {
      const good = found.filter((at) => goesIn(data.cells[at][column]));
      told = [make("p", {}, make("b", {}, `${good.length} of ${plural(found.length, "mod")}`),
        ` apply to vLLM ${data.trees[column][1]}. Choose a mod for the command.`)];
    } else {
      told = [make("p", {}, found.length ? "Choose a mod and your vLLM, or a cell of the grid."
        : "Nothing on this page matches.")];
    }
    byId("answer").replaceChildren(...told);
  }

  function verdict(row, column) {
    const entry = data.cells[row][column];
    const [mod, , { library }] = data.mods[row];
    const [tree, label] = data.trees[column];
    const from = library ? ["--library", "DIR"] : [];
    const say = (kind, word, ...more) => make("p", { className: kind }, make("b", {}, word), " ", ...more);
    if (!entry || ["unknown", "unreadable"].includes(entry.word)) {
      return [say("no", "Not known.", "This release could not be read.")];
    }
    if (entry.word === "upstream") return [say("yes", "Not needed.", `vLLM ${label} has this change already.`)];
    if (entry.word === "applied") return [say("yes", "Yes.", `${mod} is in already.`)];
    if (goesIn(entry)) {
      return [
        say("yes", "Yes.", `${mod} applies to vLLM ${label}.`,
          entry.meant ? "" : " Its author does not state this release; it was tried here.",
          entry.without ? ` Without ${entry.without.join(", ")}.` : ""),
        command("vllm-mods", "apply", quoted(mod), ...from, "--target", "SITE_PACKAGES"),
      ];
    }
    const wrong = (entry.findings ?? []).map((at) => data.findings[at]).filter((one) => one.level === "error");
    const why = wrong.find((one) => one.code !== "no-variant") ?? wrong[0]; // that no range names it is known
    const others = data.trees.flatMap(([, name], at) => (goesIn(data.cells[row][at]) ? [[name, at]] : [])).at(-1);
    return [
      say("no", "No.", `${mod} does not apply to vLLM ${label}. `, ...(others
        ? ["The newest release that it applies to is ", make("a", { href: address(mod, others[1]) }, others[0]), ". "] : []),
      ...(why ? prose(why.message) : [])),
      command("vllm-mods", "port", quoted(mod), "--to", quoted(tree), ...(library ? from : ["--output", "ported"])),
    ];
  }

  // --- a cell, opened -----------------------------------------------------------------------

  // `#mod`, and `#mod/release` for a cell.
  const address = (mod, column) => `#${encodeURI(column === undefined ? mod : `${mod}/${data.trees[column][0]}`)
    .replaceAll("#", "%23")}`;

  function hash() {
    try {
      return decodeURIComponent(location.hash.slice(1));
    } catch {
      return "";
    }
  }

  // A release is named by its tree, or by what stands above its column.
  function addressed() {
    for (const [row, [mod]] of data.mods.entries()) {
      if (!hash().startsWith(`${mod}/`)) continue;
      const release = hash().slice(mod.length + 1);
      const column = trees.get(release) ?? data.trees.findIndex(([, label]) => label === release);
      if (column >= 0) return [row, column];
    }
    return null;
  }

  // Opening a cell is a step in the history; going on to the next release is not.
  function visit(row, column) {
    const state = { from: open ? (history.state?.from ?? null) : "grid" };
    history[open ? "replaceState" : "pushState"](state, "", address(data.mods[row][0], column));
    route();
  }

  function route() {
    const found = addressed();
    const said = lookedFor();
    const part = location.hash.startsWith("#/") ? byId(location.hash.slice(2)) : null;
    for (const section of document.querySelectorAll("main > section")) section.hidden = section !== (part ?? byId("map"));
    for (const link of byId("tabs").children) {
      if ((link.hash || "#/map") === `#/${part?.id ?? "map"}`) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
    if (said) fill(said);
    if (found) {
      if (dialog.open && String(open) === String(found)) return;
      open = found;
      explain(...found);
      if (!dialog.open) dialog.showModal();
      byId("explanation").scrollTop = 0;
      byId("cell-title").focus({ preventScroll: true });
      dialog.querySelector(".hunk.lost")?.scrollIntoView();
    } else if (dialog.open) {
      dialog.close();
    } else if (!said && !part) {
      byId("status").textContent = "There is no such cell on this page.";
      byId("answer").replaceChildren(make("p", {}, byId("status").textContent));
    }
  }

  function closed() {
    const [row, column] = open;
    open = null;
    if (addressed()) {
      if (history.state?.from === "grid") history.back();
      else history.replaceState(null, "", here());
    }
    if (shown(rows[row]) && shown(heads[column + 1])) focusCell(cellOf(row, column));
    else table.querySelector("td[tabindex='0']").focus();
  }

  function neighbours(row, column) {
    for (const [id, by, sign] of [["previous", -1, "← "], ["next", 1, " →"]]) {
      let other = column + by;
      while (other in data.trees && heads[other + 1].hidden) other += by;
      const tree = data.trees[other];
      const button = byId(id);
      button.disabled = !tree;
      button.textContent = !tree ? sign : by < 0 ? sign + tree[1] : tree[1] + sign;
      button.setAttribute("aria-label", tree ? `${id}: ${tree[1]}` : `no ${id} release`);
      button.onclick = () => visit(row, other);
    }
  }

  function explain(row, column) {
    const entry = data.cells[row][column];
    const [mod, version, { summary }] = data.mods[row];
    const [tree, label] = data.trees[column];
    const icon = cellOf(row, column).querySelector("svg").cloneNode(true);
    const findings = (entry.findings ?? []).map((at) => data.findings[at]);
    const hunks = hunksOf(entry);
    neighbours(row, column);
    byId("explanation").replaceChildren(
      make("h2", { id: "cell-title", tabIndex: -1 }, `${mod} `, make("small", {}, version), ` on vLLM ${label}`),
      make("p", { className: `verdict ${entry.word}` }, icon,
        make("span", {}, make("b", {}, entry.word), `: ${data.meanings[entry.word]}`)),
      make("div", { className: "answer" }, ...verdict(row, column)),
      facts([
        ["mod", summary],
        ["variant", entry.variant],
        ["without", entry.without?.join(", ")],
        ["its author", entry.meant ? "states this release" : "does not state this release"],
        ["tree", tree],
        ["beside it", entry.packages?.join(", ")],
        ["link", make("a", { href: address(mod, column) }, "to this cell")],
      ]),
      ...section("Findings", findings.length ? [make("ul", { className: "findings" }, ...findings.map(finding))] : []),
      ...section("Hunks and the code of the target", hunks.map((one) => hunk(one, label))),
    );
  }

  const section = (title, children) => (children.length ? [make("h3", {}, title), ...children] : []);

  const facts = (pairs) => make("dl", { className: "facts" }, ...pairs
    .filter(([, value]) => value)
    .map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, value))));

  function finding(one) {
    const place = one.path && !one.message.includes(one.path)
      ? ` ${one.path}${one.line ? `:${one.line}` : ""}` : "";
    return make("li", { className: one.level }, ...prose(one.message),
      make("small", {}, `${place} [${one.level === "note" ? "note, " : ""}${one.code}]`));
  }

  const texts = (block) => data.blocks[block].map((at) => data.texts[at]);

  function hunk(one, label) {
    const lines = texts(one.lines);
    const target = texts(one.target);
    const left = [];
    const right = [];
    for (const [at, other] of data.blocks[one.rows]) {
      const text = at === null ? null : lines[at];
      const equal = text !== null && other !== null && text.slice(1) === target[other];
      const lost = text !== null && text[0] !== "+" && !equal;
      const kind = lost ? "other" : { "+": "added", "-": "taken" }[text?.[0]] ?? "";
      left.push(text === null ? blank() : line(text[0], text.slice(1), kind, "sign"));
      right.push(other === null ? blank()
        : line(one.first + other, target[other], text === null ? "" : equal ? kind || "same" : "other"));
    }
    const offset = one.offset ? ` (${signed(one.offset)} from where it was written)` : "";
    const where = !one.line ? "nothing like it is there" : one.proof
      ? `line ${one.line}${offset}` : `it has no place; nearest is line ${one.line}`;
    const proof = one.proof ? `${one.proof}: ${proofs[one.proof] ?? ""}` : null;
    return make("article", { className: one.proof ? "hunk" : "hunk lost" },
      make("header", {}, make("h4", {}, `${one.path}, hunk ${one.number}`),
        facts([["in", one.scope ?? ""], ["place", where], ["proof", proof]])),
      make("div", { className: "panes" },
        pane(`${one.patch}, hunk ${one.number}`, left),
        pane(target.length ? `vLLM ${label}, from line ${one.first}` : `vLLM ${label}: nothing to show`, right)));
  }

  function pane(title, lines) {
    const code = make("div", { className: "code", tabIndex: 0 }, make("div", { className: "lines" }, ...lines));
    code.setAttribute("role", "region");
    code.setAttribute("aria-label", title);
    return make("div", { className: "pane" }, make("h5", {}, title), code);
  }

  const line = (mark, text, kind, marked = "") => make("div", { className: kind },
    make("i", { className: marked }, `${mark}`), make("span", {}, text));
  const blank = () => make("div", { className: "blank" });

  // --- light and dark -----------------------------------------------------------------------

  function theme(chosen) {
    const dark = chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    if (chosen) document.documentElement.dataset.theme = chosen;
    byId("theme").textContent = dark ? "Light" : "Dark";
    byId("theme").onclick = () => {
      theme(dark ? "light" : "dark");
      remember("set", dark ? "light" : "dark");
    };
  }

  // A browser may keep nothing for a page from a file, and says so by throwing.
  function remember(how, value) {
    try {
      return localStorage[`${how}Item`]("vllm-mods-theme", value);
    } catch {
      return null;
    }
  }

  // --- start --------------------------------------------------------------------------------

  theme(remember("get"));
  table.setAttribute("role", "grid");
  table.setAttribute("aria-readonly", "true");
  for (const row of rows) for (const cell of row.cells) if (cell.localName === "td") cell.tabIndex = -1;
  for (const id of ["theme", "tabs", "ask", "answer", "controls", "readout", "keys"]) byId(id).hidden = false;
  byId("still").hidden = true;
  byId("verdicts").disabled = false;
  for (const id of ["package", "model"]) choices(id, about.flatMap((one) => one[id]));
  choices("proof", data.hunks.map((one) => one.proof).filter((one) => one in proofs));
  table.addEventListener("keydown", move);
  table.addEventListener("focusin", read);
  table.addEventListener("mouseover", read);
  table.addEventListener("click", (event) => {
    const cell = event.target.closest("td");
    if (cell) visit(cell.parentNode.sectionRowIndex, cell.cellIndex - 1);
  });
  const changed = () => { filter(); history.replaceState(null, "", here()); };
  byId("filter").addEventListener("input", changed);
  byId("filter").addEventListener("reset", () => setTimeout(changed));
  byId("filter").addEventListener("submit", (event) => event.preventDefault());
  byId("close").addEventListener("click", () => dialog.close());
  dialog.addEventListener("close", closed);
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
  addEventListener("popstate", route);
  addEventListener("hashchange", route);
  if (rows.length) {
    focusable(cellOf(0, data.trees.length - 1));
    table.parentNode.scrollLeft = table.scrollWidth; // the newest releases first
    if (!lookedFor()) filter();
  }
  route();
})();
