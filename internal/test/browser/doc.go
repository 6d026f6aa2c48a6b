// Package browser tests the web console in a browser: headless Chromium, driven by chromedp.
//
// It is a module of its own, so that the main module does not require the driver of a browser. The tests start Debian's
// program chromium, each browser with a profile of its own and without any request of its own to the network. They are
// skipped where there is no such program, unless LEASEKEEPER_TEST_REQUIRE names chromium. The test of accessibility
// installs axe-core from the npm registry; LEASEKEEPER_TEST_REQUIRE=axe makes it fail where that is impossible.
//
// The command screenshots takes the pictures of the documentation.
package browser
