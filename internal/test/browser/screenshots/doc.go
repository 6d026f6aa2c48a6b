// Command screenshots takes the pictures of the web console that stand in the documentation.
//
//	go run ./screenshots -out ../../../docs/images
//
// It starts a cluster of three servers with names, holders and queues of an invented system, and a console on it, and opens its
// pages in headless Chromium. It runs in the folder of this module.
package main
