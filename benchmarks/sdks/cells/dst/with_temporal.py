from temporalio.client import ScheduleCalendarSpec, ScheduleRange, ScheduleSpec

spec = ScheduleSpec(
    calendars=[ScheduleCalendarSpec(hour=[ScheduleRange(2)], minute=[ScheduleRange(30)])],
    time_zone_name="Europe/Berlin",
)
print(spec.time_zone_name, spec.calendars[0].hour)
print("partly: (its manual says) 02:30 is skipped where it does not exist, and runs twice where it exists twice")
