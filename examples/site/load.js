// Visitors of the bookshop, for k6: `k6 run -e URL=http://127.0.0.1:8000 -e RATE=50 load.js`.
//
// Sessions begin as a Poisson process: k6 starts them at even intervals, and each first waits for a
// random time, which makes their beginnings independent of each other. A visitor has a connection
// of its own, thinks between two pages for a random time, and does not wait with the next page
// because others wait, so a slow server gets no fewer visitors. The visitors of two runs with one
// SEED come at the same times and want the same pages.
//
// RATE        requests a second
// SECONDS     how long this rate lasts
// AFTER       rate and seconds of a second phase, such as 20:30
// SEED        which visitors come

import exec from "k6/execution";
import http from "k6/http";
import { sleep } from "k6";
import { SharedArray } from "k6/data";
import { Counter, Trend } from "k6/metrics";

const URL = __ENV.URL;
const RATE = Number(__ENV.RATE);
const SEED = Number(__ENV.SEED || 0);
const SECONDS = Number(__ENV.SECONDS || 30);
const [AFTER_RATE, AFTER_SECONDS] = (__ENV.AFTER || "0:0").split(":").map(Number);
const PAGES = 8; // of a session, beside its style sheet and script
const REQUESTS = PAGES + 2;
const THINK_S = 0.5;
const FIRST_S = 1.5;
const TIMEOUT = "5s";
const BOOKS = 3000;
const CATEGORIES = 16;
const READERS = 200;
const WORDS = ["history", "poetry", "cooking", "travel", "physics", "music", "gardens", "crime"];

// Percent of the pages of a session, but for its first, which is the home page.
const MIX = [
	["home", 13],
	["book", 40.5],
	["search", 20],
	["api", 14],
	["delivery", 6],
	["login", 0.5],
	["export", 3],
	["photo", 1.5],
	["report", 1.5],
];

const PHOTO = open(__ENV.PHOTO, "b");
const latency = new Trend("latency", true);
const lateness = new Trend("lateness", true);
const beginnings = new Counter("beginnings");

function phase(rate) {
	return Math.max(1, Math.round((rate / REQUESTS) * 60));
}

const stages = [{ target: phase(RATE), duration: `${SECONDS}s` }];
if (AFTER_SECONDS) {
	stages.push({ target: phase(AFTER_RATE), duration: "0s" });
	stages.push({ target: phase(AFTER_RATE), duration: `${AFTER_SECONDS}s` });
}

export const options = {
	scenarios: {
		visitors: {
			executor: "ramping-arrival-rate",
			startRate: phase(RATE),
			timeUnit: "60s",
			preAllocatedVUs: Number(__ENV.VISITORS || 200),
			maxVUs: Number(__ENV.VISITORS || 200),
			stages,
			gracefulStop: "0s",
		},
	},
	noVUConnectionReuse: true,
	discardResponseBodies: true,
	systemTags: ["name", "status", "error_code"],
	summaryTrendStats: ["med", "p(99)", "count"],
};

// Random numbers from 0 to 1, the same for a session in each run: SplitMix32.
let state = 0;

function random() {
	state = (state + 0x9e3779b9) | 0;
	let mixed = Math.imul(state ^ (state >>> 16), 0x21f0aaad);
	mixed = Math.imul(mixed ^ (mixed >>> 15), 0x735a2d97);
	return ((mixed ^ (mixed >>> 15)) >>> 0) / 2 ** 32;
}

function exponential(mean) {
	return -Math.log(1 - random()) * mean;
}

function pause(seconds) {
	const due = Date.now() + seconds * 1000;
	sleep(seconds);
	lateness.add(Date.now() - due);
}

function below(limit) {
	return Math.floor(random() * limit);
}

function chosen() {
	let left = random() * MIX.reduce((sum, [, weight]) => sum + weight, 0);
	for (const [page, weight] of MIX) {
		left -= weight;
		if (left < 0) return page;
	}
	return "home";
}

function token() {
	const cookies = http.cookieJar().cookiesForURL(URL);
	return cookies.csrftoken ? cookies.csrftoken[0] : "";
}

function params(page) {
	return { tags: { name: page }, timeout: TIMEOUT, redirects: 0, responseCallback: null };
}

const REQUEST = {
	home: () => http.get(`${URL}/`, params("home")),
	book: () => http.get(`${URL}/book/${1 + below(BOOKS)}`, params("book")),
	search: () => http.get(`${URL}/search?q=${WORDS[below(WORDS.length)]}`, params("search")),
	api: () =>
		http.post(`${URL}/api/review/${1 + below(BOOKS)}`, JSON.stringify({ stars: 1 + below(5), text: "good" }), {
			...params("api"),
			headers: { "Content-Type": "application/json" },
		}),
	delivery: () => http.get(`${URL}/delivery/${1 + below(BOOKS)}`, params("delivery")),
	login: () =>
		http.post(
			`${URL}/login`,
			{ name: `reader${below(READERS)}`, password: "open sesame", csrfmiddlewaretoken: token() },
			params("login"),
		),
	export: () => http.get(`${URL}/export/${1 + below(CATEGORIES)}`, params("export")),
	photo: () =>
		http.post(
			`${URL}/photo`,
			{ photo: http.file(PHOTO, "photo.jpg", "image/jpeg"), csrfmiddlewaretoken: token() },
			params("photo"),
		),
	report: () => http.get(`${URL}/report`, params("report")),
};

function note(page, response) {
	// What a visitor waits: k6's "blocked" includes the connection's opening.
	const took = response.timings.blocked + response.timings.duration;
	latency.add(took, { name: page, status: String(response.status) });
}

// Runs once the visitors are made, which takes seconds.
export function setup() {
	beginnings.add(1);
}

export default function () {
	state = Math.imul(SEED + 1, 0x85ebca6b) ^ Math.imul(exec.scenario.iterationInTest + 1, 0xc2b2ae35);
	pause(exponential(FIRST_S));
	note("home", REQUEST.home());
	const files = http.batch([
		["GET", `${URL}/static/bookshop.css`, null, params("static")],
		["GET", `${URL}/static/bookshop.js`, null, params("static")],
	]);
	for (const file of files) note("static", file);
	for (let page = 1; page < PAGES; page++) {
		pause(exponential(THINK_S));
		const name = chosen();
		note(name, REQUEST[name]());
	}
}
