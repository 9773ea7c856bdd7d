'use strict';
// The page draws what /debug/live sends every second. Everything that comes from the router is put into the document
// as text, never as markup.

const $ = id => document.getElementById(id);
const history = []; // a few numbers of each of the last two minutes' snapshots
let latest = null;

// el makes an element: el('td', {class: 'left'}, 'text', other elements...).
function el(name, attributes, ...inside) {
  const e = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (value === true) e.setAttribute(key, '');
    else if (value !== false && value != null) e.setAttribute(key, value);
  }
  e.append(...inside.filter(x => x != null && x !== false));
  return e;
}

const unknown = x => x == null || x < 0;
const whole = new Intl.NumberFormat('en');
const count = x => unknown(x) ? 'unknown' : whole.format(Math.round(x));
const share = x => unknown(x) ? 'unknown' : (100 * x).toFixed(x < 0.1 ? 1 : 0) + ' %';
function span(ms) {
  if (unknown(ms)) return 'unknown';
  if (ms === 0) return '0';
  if (ms < 1000) return Number(ms.toPrecision(3)) + ' ms';
  if (ms < 60e3) return Number((ms / 1000).toPrecision(3)) + ' s';
  return Math.floor(ms / 60e3) + ' min ' + Math.round(ms % 60e3 / 1000) + ' s';
}
const pair = (p, d) => !d ? 'nobody' : !p ? d + ' alone' : p + ' → ' + d;
const pieces = n => !n ? '' : n === 1 ? '1 piece' : n + ' pieces';
const clock = t => new Date(t).toLocaleTimeString('en-GB');

// ---- the stream

const headers = () => {
  const token = sessionStorage.getItem('tandem-token');
  return token ? {Authorization: 'Bearer ' + token} : {};
};

const patience = 10e3; // ms of silence of a router that sends a snapshot each second

async function follow() {
  for (let wait = 500; ; wait = Math.min(2 * wait, 10e3)) {
    const stop = new AbortController();
    let silent = setTimeout(() => stop.abort(), patience);
    try {
      const answer = await fetch('debug/live', {headers: headers(), cache: 'no-store', signal: stop.signal});
      if (answer.status === 401) {
        clearTimeout(silent);
        $('login').hidden = false;
        say('not connected', 'bad');
        return;
      }
      if (!answer.ok) throw new Error((await answer.text()).slice(0, 300));
      $('login').hidden = true;
      banner('');
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      for (let rest = ''; ;) {
        const {value, done} = await reader.read();
        if (done) break;
        clearTimeout(silent);
        silent = setTimeout(() => stop.abort(), patience);
        const events = (rest + value).split('\n\n');
        rest = events.pop();
        if (events.length) {
          draw(JSON.parse(events.at(-1).slice('data: '.length)));
          wait = 500;
        }
      }
      throw new Error('the router has ended the connection');
    } catch (problem) {
      clearTimeout(silent);
      say('not connected', 'bad');
      banner('Not connected: ' + (stop.signal.aborted ? 'the router is silent' : problem.message) + '. What stands here is of ' + (latest ? clock(latest.time) : 'never') + '; trying again.');
      await new Promise(r => setTimeout(r, wait));
    }
  }
}

async function get(path) {
  const answer = await fetch(path, {headers: headers(), cache: 'no-store'});
  const text = await answer.text();
  if (!answer.ok) {
    let why = text;
    try { why = JSON.parse(text).error || text; } catch { /* it is no JSON */ }
    throw new Error(why);
  }
  return text;
}

function say(text, kind) {
  if ($('ready').textContent !== text) $('ready').textContent = text; // a screen reader tells of each change
  $('ready').className = kind;
}

function banner(text) {
  $('banner').textContent = text;
  $('banner').hidden = !text;
}

// ---- drawing

function draw(live) {
  if (live.error) return banner('The router cannot tell its state: ' + live.error);
  latest = live;
  drawReady(live);
  $('flow').textContent = count(live.in_flight) + ' in flight, ' + count(live.waiting) + ' waiting for room';
  banner(live.rejected ? 'The newest configuration was rejected: ' + live.rejected : '');
  $('hints').textContent = (live.hints || []).join('. ');
  $('hints').hidden = !live.hints;
  const c = live.config;
  $('weights').textContent = 'Revision ' + c.revision + ': alpha ' + c.alpha + ', beta ' + c.beta + ', gamma ' + c.gamma + ', decode_penalty ' + c.decode_penalty;
  drawNow(live.recent);
  drawFleet(live);
  drawPairs(live);
  drawClasses(live.classes || []);
  drawKeys(live);
  if (!$('pause').checked) drawNewest(live.newest);
}

// drawReady says in the head how many replicas get requests, with a link to each of the first few that do not
// and that serve less than they could.
function drawReady(live) {
  const out = live.out || [], limited = live.limited || [], most = 3, head = $('ready');
  if (!live.ready) return say('not ready: ' + (live.why || []).join('; '), 'bad');
  const text = live.usable + ' of ' + live.replicas.length + ' usable', drawn = [text, out.join(), limited.join()].join(';');
  if (!out.length && !limited.length) return say('ready, ' + text, 'good');
  if (head.dataset.drawn === drawn && head.className === 'warn') return;
  const links = names => [...names.slice(0, most).flatMap((name, i) => [i ? ', ' : '', el('a', {href: '#replica-' + name}, name)]), names.length > most ? ' and ' + (names.length - most) + ' more' : ''];
  head.replaceChildren(text, ...out.length ? [': ', ...links(out)] : [], ...limited.length ? [(out.length ? '; ' : ', ') + limited.length + ' limited: ', ...links(limited)] : []);
  head.className = 'warn';
  head.dataset.drawn = drawn;
}

function drawNow(r) {
  const over = Math.max(r.seconds, 1), ratio = (a, b) => b > 0 ? a / b : -1;
  history.push({rate: r.requests / over, first: r.first_ms.p50, predicted: r.predicted_ms.p50, token: r.token_ms.p50});
  if (history.length > 120) history.shift();
  const minute = 'of the last ' + Math.round(over) + ' s';
  const tile = (name, value, more, ...lines) => el('div', {class: 'tile'}, el('dt', null, name), el('dd', null, value), el('dd', null, more), lines.length > 0 && el('dd', null, plot(lines)));
  const known = r.prompt_tokens > 0;
  $('now').replaceChildren(
    tile('Requests a second', (r.requests / over).toPrecision(3), count(r.requests) + ' ' + minute, 'rate'),
    tile('Failed', count(r.errors), count(r.retried) + ' were tried again'),
    tile('TTFT, median', span(r.first_ms.p50), 'p90 ' + span(r.first_ms.p90) + ', predicted ' + span(r.predicted_ms.p50), 'first', 'predicted'),
    tile('ITL, median', span(r.token_ms.p50), 'p90 ' + span(r.token_ms.p90) + ', p99 ' + span(r.token_ms.p99), 'token'),
    tile('Prefix hits possible', known ? share(ratio(r.available_tokens, r.prompt_tokens)) : 'unknown', 'of prompt tokens, on the best replica'),
    tile('Prefix hits planned', known ? share(ratio(r.captured_tokens, r.available_tokens)) : 'unknown', 'of what was possible'),
    tile('Prefix hits delivered', known ? share(ratio(r.delivered_tokens, r.captured_tokens)) : 'unknown', 'of what was planned, by the engines'),
    tile('Split', share(ratio(r.split, r.requests)), 'prefill and decode on two replicas'),
  );
}

// plot draws lines of the last two minutes over one scale. The numbers beside it say the same.
function plot(names) {
  const space = 'http://www.w3.org/2000/svg', svg = document.createElementNS(space, 'svg');
  svg.setAttribute('viewBox', '0 0 119 20');
  svg.setAttribute('preserveAspectRatio', 'none');
  svg.setAttribute('aria-hidden', 'true');
  const top = Math.max(...history.flatMap(h => names.map(n => unknown(h[n]) ? 0 : h[n])), 1e-9);
  names.forEach((name, i) => {
    let path = '', pen = 'M';
    history.forEach((h, x) => {
      if (unknown(h[name])) { pen = 'M'; return; }
      path += pen + (120 - history.length + x) + ' ' + (19 - 18 * h[name] / top).toFixed(1);
      pen = 'L';
    });
    const line = document.createElementNS(space, 'path');
    line.setAttribute('d', path || 'M0 0');
    if (i > 0) line.setAttribute('class', 'second');
    svg.append(line);
  });
  return svg;
}

// table fills t, and keeps its head from one second to the next, so that nothing jumps under a finger.
function table(t, caption, heads, rows) {
  const body = el('tbody', null, ...rows);
  const key = caption + '|' + heads.map(h => h.name ?? h).join('|');
  if (t.dataset.key !== key) {
    t.dataset.key = key;
    t.replaceChildren(el('caption', null, caption),
      el('thead', null, el('tr', null, ...heads.map(h => el('th', {scope: 'col', class: h.left && 'left', title: h.title}, h.name ?? h)))), body);
    return;
  }
  const focused = document.activeElement && t.contains(document.activeElement) && document.activeElement.dataset.id;
  t.tBodies[0].replaceWith(body);
  if (focused) t.querySelector('[data-id="' + CSS.escape(focused) + '"]')?.focus();
}

const meter = (x, text) => [el('span', {class: 'meter' + (x > 0.9 ? ' hot' : ''), 'data-is': unknown(x) ? 0 : x}), text];

// fillMeters sets the widths: the page's policy allows no style attributes, but scripts may set properties.
function fillMeters(t) {
  for (const m of t.querySelectorAll('.meter')) m.style.setProperty('--is', (100 * Math.min(m.dataset.is, 1)).toFixed(0) + '%');
}

function beside(learned, profile, unit, samples) {
  if (!samples) return el('span', {class: 'quiet', title: 'nothing is learned yet: the profile'}, Number(profile.toPrecision(3)) + ' ' + unit);
  return Number(learned.toPrecision(3)) + ' ' + unit + ' (' + (learned / profile).toPrecision(2) + '×)';
}

function drawFleet(live) {
  const words = $('filter').value.toLowerCase().split(/\s+/).filter(Boolean), only = $('trouble').checked;
  let shown = 0;
  for (const pool of ['prefill', 'decode']) {
    const all = live.replicas.filter(r => r.pool === pool).map(r => ({r, is: r.condition}));
    const rows = all.filter(({r, is}) => (!only || is.bad > 0) && words.every(w => (r.name + ' ' + r.url + ' ' + (r.model || '') + ' ' + is.text).toLowerCase().includes(w)));
    rows.sort((a, b) => b.is.bad - a.is.bad); // stable: by the file behind that
    shown += rows.length;
    const usable = all.filter(x => x.is.bad < 2).length;
    const idle = words.length || only || expanded.has(pool) ? [] : rows.filter(({r, is}) => is.bad === 0 && r.running <= 0 && r.waiting <= 0 && r.requests === 0);
    const folded = idle.length > mostIdle;
    const heads = [{name: 'Replica', left: true}, {name: 'State', left: true}, {name: 'KV in use', left: true}, 'Running', 'Queued there',
      {name: 'Ours', title: 'requests of this router there'}];
    heads.push(...pool === 'prefill'
      ? [{name: 'Tokens to compute', title: 'queued prompt tokens that are not cached'}, 'Done in', {name: 'A token', title: 'of prefill, learned; beside the profile of an 8B model on an H100'}]
      : [{name: 'Free blocks', title: 'that may be promised'}, {name: 'Local prefills done in'}, {name: 'A step', title: 'of decoding alone, learned; beside the profile of an 8B model on an H100'}]);
    heads.push({name: 'Cached', title: 'blocks that the index knows, of its capacity'}, {name: 'Drain', title: 'no new requests; those that run there end'});
    table($(pool), pool + ': ' + usable + ' of ' + all.length + ' usable', heads, (folded ? rows.filter(x => !idle.includes(x)) : rows).flatMap(({r, is}) => [el('tr', {id: 'replica-' + r.name},
      el('th', {scope: 'row', title: r.url}, el('button', {type: 'button', class: 'link', 'data-open': r.name, 'data-id': 'open ' + r.name, 'aria-expanded': String(opened.name === r.name), title: 'the last hour of ' + r.name}, r.name), r.model ? el('span', {class: 'quiet'}, ' ' + r.model) : ''),
      el('td', {class: 'say ' + ['good', 'warn', 'bad'][is.bad]}, ['', '▲ ', '✕ '][is.bad] + is.text),
      el('td', {class: 'left'}, ...meter(r.usage, share(r.usage))),
      el('td', {title: r.max_num_seqs > 0 && 'it runs no more at a time than the second number, as was learned'}, count(r.running) + (r.max_num_seqs > 0 ? ' of ' + count(r.max_num_seqs) : '')), el('td', null, count(r.waiting)), el('td', null, count(r.requests)),
      ...pool === 'prefill'
        ? [el('td', null, count(r.queued_tokens)), el('td', null, span(r.wait_ms)), el('td', null, beside(r.speed.token_us, live.profile.token_us, 'µs', r.speed.samples))]
        : [el('td', null, count(r.free_blocks)), el('td', null, span(r.wait_ms)), el('td', null, beside(r.speed.step_ms, live.profile.step_ms, 'ms', r.speed.samples))],
      el('td', null, r.capacity_blocks > 0 ? share(Math.min(1, r.indexed_blocks / r.capacity_blocks)) : count(r.indexed_blocks)),
      el('td', null, drainButton(r))), ...opened.name === r.name ? [el('tr', {class: 'past'}, el('td', {class: 'left', colspan: heads.length}, opened.box))] : []]).concat(folded || expanded.has(pool) && !words.length && !only ? [fold(pool, idle, heads.length)] : []));
    fillMeters($(pool));
  }
  $('shown').textContent = shown === live.replicas.length ? '' : shown + ' of ' + live.replicas.length + ' shown';
}

// ---- the last hour

const opened = {name: '', box: el('div', {class: 'charts'})}; // the replica whose last hour is shown

// lastHour draws the past of all requests, and of the opened replica. A step of it takes 10 s.
async function lastHour() {
  try {
    charts($('hour'), JSON.parse(await get('debug/history')), [
      ['Requests a second', {requests: 'requests'}, (x, step) => x / step, rate],
      ['Failed a minute', {failed: 'failed'}, (x, step) => 60 * x / step, rate],
      ['TTFT', {ttft_p50: 'p50', ttft_p90: 'p90', ttft_p99: 'p99'}, null, span],
      ['ITL', {itl_p50: 'p50', itl_p90: 'p90', itl_p99: 'p99'}, null, span],
      ['Prefix hits', {hits_delivered: 'delivered', hits_possible: 'possible'}, null, share, 1],
      ['Split', {split: 'of requests'}, null, share, 1],
      ['KV in use, prefill', {kv_prefill: 'mean'}, null, share, 1],
      ['KV in use, decode', {kv_decode: 'mean'}, null, share, 1],
    ]);
    if (opened.name) await pastOf(opened.name);
  } catch (problem) {
    if ($('login').hidden) $('hour').replaceChildren(el('p', {class: 'bad'}, problem.message));
  }
}

async function pastOf(name) {
  try {
    charts(opened.box, JSON.parse(await get('debug/history?replica=' + encodeURIComponent(name))), [
      ['Requests a second', {requests: 'requests'}, (x, step) => x / step, rate],
      ['Failed a minute', {failed: 'failed'}, (x, step) => 60 * x / step, rate],
      ['In the engine', {running: 'running', waiting: 'queued'}, null, rate],
      ['KV in use', {kv: 'share'}, null, share, 1],
      ['TTFT', {ttft_p50: 'p50', ttft_p90: 'p90'}, null, span],
      ['ITL', {itl_p50: 'p50'}, null, span],
    ]);
  } catch (problem) {
    opened.box.replaceChildren(el('p', {class: 'quiet'}, problem.message));
  }
}

const rate = x => unknown(x) ? 'unknown' : Number(x.toPrecision(3)).toString();

// charts draws one for each [title, {series: name}, scale, unit, top]; top is the least that the axis reaches.
function charts(box, past, list) {
  box.replaceChildren(...list.map(([title, lines, scale, unit, top]) => chart(title, Object.entries(lines).map(([series, name]) =>
    ({name, points: (past.series[series] || []).map(x => x == null ? null : scale ? scale(x, past.step_s) : x)})), unit, top || 0, past)));
}

const hourPoints = 360;

function chart(title, lines, unit, least, past) {
  const space = 'http://www.w3.org/2000/svg', svg = document.createElementNS(space, 'svg'), high = 60;
  const known = lines.flatMap(l => l.points).filter(x => x != null), top = Math.max(least, ...known) || 1;
  svg.setAttribute('viewBox', '0 0 ' + hourPoints + ' ' + high);
  svg.setAttribute('preserveAspectRatio', 'none');
  svg.setAttribute('aria-hidden', 'true');
  const draw = (d, kind) => {
    const path = document.createElementNS(space, 'path');
    path.setAttribute('d', d);
    path.setAttribute('class', kind);
    svg.append(path);
  };
  draw('M0 .5H360M0 30H360M0 59.5H360M90 0V60M180 0V60M270 0V60', 'grid');
  lines.forEach((l, i) => {
    let d = '', pen = 'M';
    l.points.forEach((y, x) => {
      if (y == null) { pen = 'M'; return; }
      const at = (hourPoints - l.points.length + x) + ' ' + (high - 1 - (high - 2) * y / top).toFixed(1);
      d += pen + at + (pen === 'M' ? 'h.5' : '');
      pen = 'L';
    });
    draw(d || 'M0 0', 'line' + i);
  });
  const last = l => l.points.length ? l.points.at(-1) : null;
  const legend = lines.map((l, i) => el('span', {class: 'line' + i}, (lines.length > 1 ? l.name + ' ' : '') + (last(l) == null ? '–' : unit(last(l)))));
  return el('figure', {'aria-label': title + ' in the last hour: ' + lines.map(l => l.name + ' now ' + (last(l) == null ? 'unknown' : unit(last(l)))).join(', ') + '; at most ' + (known.length ? unit(Math.max(...known)) : 'unknown')},
    el('figcaption', null, el('span', null, title), el('span', {class: 'quiet', title: 'the height of the chart'}, known.length ? '0 – ' + unit(top) : ''), el('span', {class: 'legend'}, ...legend)), svg,
    el('div', {class: 'axis', 'aria-hidden': 'true'}, el('span', null, '–60 min'), el('span', null, '–30'), el('span', null, clock(past.end).slice(0, 5))));
}

const mostIdle = 8; // idle replicas of a pool that have a row each
const expanded = new Set(); // pools of which all have one

// fold is the row that stands for the idle replicas of a pool, or puts them together again.
function fold(pool, idle, columns) {
  const text = expanded.has(pool) ? 'Fold the idle replicas' : idle.length + ' replicas are in use and idle: ' + idle.slice(0, 6).map(({r}) => r.name).join(', ') + (idle.length > 6 ? ', …' : '') + ' (show)';
  return el('tr', null, el('td', {class: 'left', colspan: columns}, el('button', {type: 'button', class: 'link', 'data-fold': pool, 'data-id': 'fold ' + pool}, text)));
}

const drained = r => (r.states || []).some(s => s.state === 'drained' || s.state === 'draining');

function drainButton(r) {
  const act = drained(r) ? 'undrain' : 'drain';
  return el('button', {type: 'button', 'data-act': act, 'data-id': act + ' ' + r.name, 'data-replica': r.name.replace(/\/dp\d+$/, ''),
    'aria-label': act + ' ' + r.name}, act === 'drain' ? 'Drain' : 'Use again');
}

// drain sends no new requests to a replica, or ends that, once the operator has confirmed it.
async function drain({act, replica}, force) {
  if (act === 'drain' && !force && !confirm('Send no new requests to ' + replica + '?\nThose that run there end. Then it can be stopped.')) return;
  const answer = await fetch('-/' + act + '?replica=' + encodeURIComponent(replica) + (force ? '&force=true' : ''), {method: 'POST', headers: headers()});
  const said = await answer.json().catch(() => ({error: 'the router answered with status ' + answer.status}));
  if (answer.status === 409 && act === 'drain' && confirm(said.error.replace('; --force drains it all the same', '') + '.\nDrain it all the same?')) return drain({act, replica}, true);
  $('done').textContent = said.error || [...said.replicas.map(s => s.replica + ' (' + s.pool + ') is ' + s.state + '.'), ...(said.notes || []).map(n => 'Note: ' + n + '.')].join(' ');
  $('done').hidden = false;
}

const largestMatrix = 24; // replicas a side; beyond it pairs are a list

function drawPairs(live) {
  const side = pool => live.replicas.filter(r => r.pool === pool).map(r => r.name);
  const ps = side('prefill'), ds = side('decode'), at = new Map(live.pairs.map(p => [p.prefill + '\n' + p.decode, p]));
  if (ps.length <= largestMatrix && ds.length <= largestMatrix) {
    return table($('matrix'), 'handoffs from a prefill replica (rows) to a decode replica (columns)', [{name: 'From', left: true}, ...ds], ps.map(p => el('tr', null, el('th', {scope: 'row'}, p), ...ds.map(d => cell(at.get(p + '\n' + d))))));
  }
  const worst = [...live.pairs].sort((a, b) => out(b) - out(a) || b.failures - a.failures || b.sent - a.sent).slice(0, 100);
  table($('matrix'), worst.length ? worst.length + ' of ' + count(ps.length * ds.length) + ' pairs: those with problems, then those with most handoffs' : 'no handoff yet over any of ' + count(ps.length * ds.length) + ' pairs',
    [{name: 'Pair', left: true}, {name: 'State', left: true}, 'Handoffs', 'Tokens', 'Learned', 'Failed lately'],
    worst.map(p => el('tr', null, el('th', {scope: 'row'}, pair(p.prefill, p.decode)), el('td', {class: 'say ' + (out(p) ? 'bad' : '')}, p.condition.text),
      el('td', null, count(p.sent)), el('td', null, count(p.tokens)), el('td', null, p.samples ? p.gb_s.toPrecision(3) + ' GB/s' : ''), el('td', null, p.failures.toFixed(1)))));
}

const out = p => p.condition.bad ? 1 : 0;

function cell(p) {
  if (!p) return el('td', {class: 'cell quiet'}, '–');
  return el('td', {class: 'cell' + (out(p) ? ' out' : ''), title: count(p.tokens) + ' tokens moved' + (p.cause ? '; ' + p.cause : '')},
    out(p) ? el('span', {class: 'bad'}, '✕ ' + p.state.replaceAll('_', ' ')) : count(p.sent),
    el('small', null, p.samples ? p.gb_s.toPrecision(3) + ' GB/s' : ''), p.failures >= 0.5 && el('small', {class: 'bad'}, Math.round(p.failures) + ' failed lately'));
}

// reveal shows a section and its link, or hides both.
const reveal = (id, is) => [$(id), document.querySelector(`nav [href="#${id}"]`)].forEach(e => { e.hidden = !is; });

// drawClasses says how the requests of each class are served.
function drawClasses(classes) {
  reveal('classes', classes.length);
  table($('by-class'), 'Now, and in the last minute', [{name: 'Class', left: true}, 'Waiting', 'Running', 'Requests, minute', {name: 'Refused, minute', title: 'with 429'}, {name: 'Within goals, minute', title: 'share of the answers'}],
    classes.map(c => el('tr', null, el('th', {scope: 'row'}, c.class), ...[c.waiting, c.running, c.requests].map(n => el('td', null, count(n))),
      el('td', {class: c.refused ? 'warn' : ''}, (c.refused ? '▲ ' : '') + count(c.refused)), el('td', null, c.judged ? share(c.kept / c.judged) : '–'))));
}

// drawKeys lists the client keys that use the fleet.
function drawKeys(live) {
  const keys = live.keys || [], more = live.more_keys || 0;
  reveal('keys', keys.length);
  const numbers = u => [u.requests, u.prompt_tokens, u.cached_tokens, u.generated_tokens].map(n => el('td', null, count(n)));
  const heads = of => ['Requests', 'Prompt', 'Cached', 'Output'].map(name => ({name: name + of, title: name === 'Requests' ? '' : 'tokens'}));
  table($('usage'), 'Used in the last minute and in the last hour' + (more ? '; ' + more + ' more keys with fewer tokens' : ''),
    [{name: 'Key', left: true}, {name: 'Limited now', left: true}, ...heads(', minute'), ...heads(', hour')],
    keys.map(k => el('tr', null, el('th', {scope: 'row'}, k.key), el('td', {class: 'left warn'}, k.over ? '▲ ' + count(k.minute.refused) + ' refused: ' + k.over : ''),
      ...numbers(k.minute), ...numbers(k.hour))));
}

function drawNewest(list) {
  table($('newest'), 'The newest ' + list.length, [{name: 'Time', left: true}, {name: 'Request', left: true}, {name: 'Went to', left: true}, {name: 'Outcome', left: true}, 'Prompt', 'Cached', 'TTFT', 'Predicted', 'Output', 'Took', {name: 'Why', left: true}],
    list.map(r => el('tr', null, el('td', {class: 'left'}, clock(r.time)),
      el('th', {scope: 'row'}, el('button', {class: 'link', type: 'button', 'data-id': r.id}, r.client_id || r.id), r.key && el('small', null, ' of ' + r.key)),
      el('td', {class: 'left', title: r.pieces && 'so many pieces of its prompt went there before the request itself'}, pair(r.prefill, r.decode) + (r.pieces ? ', ' + pieces(r.pieces) : '')),
      el('td', {class: 'left ' + (r.outcome === 'ok' ? '' : 'bad')}, r.outcome.replaceAll('_', ' ') + (r.attempts > 1 ? ', ' + r.attempts + ' attempts' : '')),
      el('td', null, count(r.prompt_tokens)), el('td', null, count(r.cached_tokens)), el('td', null, span(r.first_ms)), el('td', null, span(r.predicted_ms)),
      el('td', null, count(r.output_tokens)), el('td', null, span(r.total_ms)), el('td', {class: 'say'}, r.reason))));
}

// ---- one request

async function show(id) {
  const box = $('found');
  try {
    const r = JSON.parse(await get('debug/decisions/' + encodeURIComponent(id)));
    box.replaceChildren(explained(r));
  } catch (problem) {
    box.replaceChildren(el('div', null, el('p', {class: 'bad'}, problem.message)));
  }
  box.focus({preventScroll: true});
  box.scrollIntoView({block: 'nearest'});
}

// turns says of a prompt that its decode replica computes itself how it went there.
function turns(r) {
  const turn = r.phases_ms.turn, waited = turn >= 1 ? span(turn) + ' of it waiting for prompts of others there' : '';
  const all = [r.pieces ? 'in ' + pieces(r.pieces) : '', waited].filter(Boolean).join(', ');
  return all && ' (' + all + ')';
}

function explained(r) {
  const p = r.phases_ms, d = r.decision, close = el('button', {type: 'button', class: 'link'}, 'close');
  close.addEventListener('click', () => { $('found').replaceChildren(); $('id').focus(); });
  const box = el('div', null,
    el('h3', null, (r.client_id ? r.client_id + ' (' + r.id + ')' : r.id) + ': ' + pair(r.prefill, r.decode) + ' '), el('p', null, r.reason),
    el('p', null, r.outcome.replaceAll('_', ' ') + ', status ' + r.status + (r.key ? ', key ' + r.key : '') + ', ' + r.path + (r.model ? ', model ' + r.model : '') + ', ' + new Date(r.time).toLocaleString('en-GB')),
    el('p', null, 'Cached prompt tokens: best replica ' + count(r.available_tokens) + '; chosen replica ' + count(r.captured_tokens) + ' predicted, ' + count(r.delivered_tokens) + ' reported.' +
      (r.prefill ? ' Moved: ' + count(r.moved_tokens) + ' of ' + count(r.planned_tokens) + ' planned.' : '')),
    el('p', null, 'Tokenize ' + span(p.tokenize) + ', queue ' + span(p.queue) + ', plan ' + span(p.plan) + ', prefill ' + span(p.prefill) + turns(r) + ', handoff ' + span(p.handoff) +
      ', TTFT ' + span(p.first) + (d ? ' (predicted ' + span(d.predicted_ttft_ms) + ')' : '') + ', all of it ' + span(p.total) + '.'),
    ...(r.failed_attempts || []).map((a, i) => el('p', {class: 'warn'}, 'Attempt ' + (i + 1) + ' failed: ' + pair(a.prefill, a.decode) + ', ' + a.phase + ' ' + a.kind + (a.at ? ' at ' + a.at : '') + ', status ' + a.status + ', after ' + span(a.took_ms) + '.')),
    r.config && el('p', {class: 'quiet'}, 'Configuration ' + r.config.revision + ': alpha ' + r.config.alpha + ', beta ' + r.config.beta + ', gamma ' + r.config.gamma + ', decode_penalty ' + r.config.decode_penalty));
  if (d && d.plans && d.plans.length) box.append(plans(d));
  box.append(close);
  return box;
}

function plans(d) {
  const terms = Object.keys(d.plans[0].terms).filter(t => d.plans.some(p => p.terms[t] !== 0));
  const t = el('table');
  table(t, d.compared + ' plans were compared; cost in ' + (d.units === 'raw' ? 'the formula’s units' : 'ms') + ', the smallest wins', [{name: 'Plan', left: true}, ...terms, 'total'],
    d.plans.map((p, i) => el('tr', {class: i === 0 && 'chosen'}, el('th', {scope: 'row'}, pair(p.prefill, p.decode) + (i === 0 ? ' (chosen)' : '')),
      ...terms.map(term => el('td', null, p.terms[term] === 0 ? '–' : p.terms[term].toFixed(1))), el('td', null, p.total.toFixed(1)))));
  return el('div', {class: 'wide', tabindex: 0, role: 'region', 'aria-label': 'Plans that were compared'}, t);
}

async function showText(path, none) {
  const box = $('yaml');
  try { box.textContent = (await get(path)) || none; } catch (problem) { box.textContent = problem.message; }
  box.hidden = false;
  box.focus();
}

// ---- what people do

document.addEventListener('DOMContentLoaded', () => {
  $('filter').addEventListener('input', () => latest && drawFleet(latest));
  $('trouble').addEventListener('change', () => latest && drawFleet(latest));
  for (const pool of ['prefill', 'decode']) {
    $(pool).addEventListener('click', e => {
      const {act, fold, open} = e.target.dataset;
      if (open) {
        opened.name = opened.name === open ? '' : open;
        opened.box.replaceChildren();
        drawFleet(latest);
        if (opened.name) pastOf(open);
      }
      if (act) drain(e.target.dataset).catch(problem => banner(problem.message));
      if (fold) {
        if (!expanded.delete(fold)) expanded.add(fold);
        drawFleet(latest);
      }
    });
  }
  $('newest').addEventListener('click', e => e.target.dataset.id && show(e.target.dataset.id));
  $('lookup').addEventListener('submit', e => { e.preventDefault(); show($('id').value.trim()); });
  $('show-config').addEventListener('click', () => showText('-/config', ''));
  $('show-changes').addEventListener('click', () => showText('-/config/changes', 'Nothing: the file says what is in force.'));
  $('login').addEventListener('submit', e => {
    e.preventDefault();
    sessionStorage.setItem('tandem-token', $('token').value);
    $('token').value = '';
    follow();
    lastHour();
  });
  follow();
  lastHour();
  setInterval(lastHour, 10e3);
});
