package v1alpha1

// MaintenanceWindow is when the hosts of a pool can begin updates.
type MaintenanceWindow struct {
	// schedule is when the window opens, in the format of a CronJob, such as "0 22 * * 6" for Saturdays at 22:00.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Schedule string `json:"schedule,omitempty"`

	// durationMinutes is how long the window is open, in minutes, at most a week.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10080
	DurationMinutes int32 `json:"durationMinutes,omitempty"`

	// timeZone is the time zone of the schedule: a name of the time zone database, such as Europe/Berlin. Defaults to
	// UTC.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	TimeZone string `json:"timeZone,omitempty"`
}
