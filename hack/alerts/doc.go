// Package alerts has the tests of config/prometheus, the alerts.
package alerts
